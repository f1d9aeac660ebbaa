"""What is asked: scenarios, and the prompts and times made of them."""
