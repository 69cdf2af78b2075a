"""The outer loop that finds the best policy within a budget."""
