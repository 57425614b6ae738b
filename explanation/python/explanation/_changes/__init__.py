"""Changes of a program that mend breaks: in the syntax tree of the user's file, or as settings of Dynamo's."""
