// The files of the MNIST family, uncompressed (gunzip -k them first) or synthetic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct Images {
  std::vector<float> pixels;    // [count * size], in 0..1
  std::vector<uint8_t> labels;  // [count], 0..9
  int64_t count = 0;
  int64_t size = 0;  // pixels of one image
};

// Reads folder/part-images-idx3-ubyte and folder/part-labels-idx1-ubyte. Empty if one is
// missing or malformed.
std::optional<Images> read_idx(const std::string& folder, const std::string& part);

// Ten noisy blobs, the same on every rank, for machines without the data set.
Images make_synthetic(int64_t count, uint32_t seed);
