"""Pages for people: results as one HTML file, and the templates that other pages extend."""
