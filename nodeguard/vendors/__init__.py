"""The only place that knows an accelerator brand; one package a vendor."""
