"""What `weft.backend` does to Dynamo's and AOTAutograd's graphs: loops rolled up, regions made one program."""
