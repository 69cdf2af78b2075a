"""The built-in suites: repo, web, tools."""
