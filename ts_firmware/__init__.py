"""The device: firmware, the modelled SoC, and the emulator that runs both."""
