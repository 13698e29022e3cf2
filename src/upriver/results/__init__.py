"""From files of runs to numbers, tables, figures, a page and a live view."""
