"""YOLOv5s at 640x640 as a pipeline over a hybrid SoC: layer shapes, program, direct API form."""
