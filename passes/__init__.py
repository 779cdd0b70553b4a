"""Passes over joint graphs: reading, cleaning, splitting, checking. They know nothing of costs."""
