"""The transformations that `weft.backend` applies to Dynamo's and AOTAutograd's graphs: loops rolled up, regions made
one program."""
