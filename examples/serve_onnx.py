"""Features of images by the ONNX file of a run; needs numpy, Pillow and onnxruntime, not torch, not frossl.

frossl export RUN --format onnx --out photos-onnx
python serve_onnx.py photos-onnx/encoder.onnx photos/a/1.jpg photos/b/2.jpg
"""

import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1])
_, channels, size, _ = session.get_inputs()[0].shape


def prepared(path: str) -> np.ndarray:
    opened = Image.open(path, formats=["JPEG", "PNG", "WEBP", "BMP", "TIFF"])  # no PostScript
    image = ImageOps.exif_transpose(opened).convert("RGB" if channels == 3 else "L")
    width, height = (round(side * size / min(image.size)) for side in image.size)
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.asarray(resized).reshape(height, width, channels)
    left, top = (width - size) // 2, (height - size) // 2
    return pixels[top : top + size, left : left + size].transpose(2, 0, 1)  # the central square


(features,) = session.run(None, {"images": np.stack([prepared(path) for path in sys.argv[2:]])})
np.savetxt(sys.stdout, features, fmt="%.6g")
