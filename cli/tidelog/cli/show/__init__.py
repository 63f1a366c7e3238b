"""Shows values: tables, lines, amounts, times."""
