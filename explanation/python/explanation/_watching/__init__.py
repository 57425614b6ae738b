"""What Dynamo did while a program ran: its trace, its calls, its messages, as graphs and breaks."""
