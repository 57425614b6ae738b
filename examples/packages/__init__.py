"""Programs around packages of weft.package: each folder trains a model, packages it, and runs it elsewhere."""
