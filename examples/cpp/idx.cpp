#include "idx.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

namespace {

// The bytes after the header of an IDX file with `dims` dimensions; shape receives the dimensions.
std::optional<std::vector<uint8_t>> read_file(const std::string& path, size_t dims,
                                              std::vector<int64_t>& shape) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> raw{std::istreambuf_iterator<char>(file), {}};
  const size_t header = 4 + 4 * dims;
  if (raw.size() < header || raw[2] != 8 || raw[3] != dims) return std::nullopt;  // type 8: unsigned bytes
  size_t total = 1;
  for (size_t i = 0; i < dims; ++i) {
    int64_t extent = 0;
    for (size_t byte = 0; byte < 4; ++byte) extent = extent << 8 | raw[4 + 4 * i + byte];
    shape.push_back(extent);
    total *= static_cast<size_t>(extent);
  }
  if (raw.size() - header != total) return std::nullopt;
  raw.erase(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(header));
  return raw;
}

}  // namespace

std::optional<Images> read_idx(const std::string& folder, const std::string& part) {
  std::vector<int64_t> image_shape, label_shape;
  auto pixels = read_file(folder + "/" + part + "-images-idx3-ubyte", 3, image_shape);
  auto labels = read_file(folder + "/" + part + "-labels-idx1-ubyte", 1, label_shape);
  if (!pixels || !labels || image_shape[0] != label_shape[0]) return std::nullopt;
  Images images;
  images.count = image_shape[0];
  images.size = image_shape[1] * image_shape[2];
  images.labels = std::move(*labels);
  images.pixels.resize(pixels->size());
  std::transform(pixels->begin(), pixels->end(), images.pixels.begin(), [](uint8_t p) { return p / 255.0f; });
  return images;
}

Images make_synthetic(int64_t count, uint32_t seed) {
  Images images;
  images.count = count;
  images.size = 64;
  std::mt19937 centre_engine(1), engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> centres(static_cast<size_t>(10 * images.size));
  for (float& value : centres) value = normal(centre_engine);
  for (int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<uint8_t>(engine() % 10);
    images.labels.push_back(label);
    for (int64_t p = 0; p < images.size; ++p) {
      images.pixels.push_back(centres[static_cast<size_t>(label * images.size + p)] + normal(engine));
    }
  }
  return images;
}
