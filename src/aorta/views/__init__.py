"""Plain lines or a live view on a terminal, from engine events; no decision rests on a view."""
