"""Adam and RMSProp, and recorded backward passes."""
