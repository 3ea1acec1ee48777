"""The paper's rows, findings and tables beside ours."""
