"""`weft survey`: a collection of models explained, and what was found as a page."""
