"""What a decoder layer does between its products and attention, a launch for each step."""
