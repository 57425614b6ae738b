"""Programs that use packages made by weft.package: each folder trains a model, packages it, and runs it elsewhere."""
