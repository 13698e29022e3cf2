"""From a results folder to numbers, tables, figures and a page."""
