"""Tables, figures and reports from the files that training runs leave."""
