"""Nothing here needs a device."""
