// Softmax regression on Fashion-MNIST (or synthetic data) with any number of ranks, on plain arrays.
//
//   rueda run -np 2 ./softmax_regression [folder with uncompressed IDX files]
//
// The lines marked "rueda" are added for training with many processes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "idx.h"
#include "rueda/rueda.hpp"  // rueda

namespace {

constexpr int64_t kClasses = 10;
constexpr int64_t kBatch = 100;  // images per rank and step
constexpr int kEpochs = 5;
constexpr float kRate = 0.1f;

// Computes the scores of one image, then its probabilities. weights: [kClasses * (size + 1)]; the last column
// is the bias.
std::array<float, kClasses> predict(std::span<const float> weights, std::span<const float> pixels) {
  std::array<float, kClasses> scores{};
  const size_t row = pixels.size() + 1;
  for (size_t c = 0; c < kClasses; ++c) {
    float score = weights[c * row + pixels.size()];
    for (size_t p = 0; p < pixels.size(); ++p) score += weights[c * row + p] * pixels[p];
    scores[c] = score;
  }
  const float highest = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) sum += score = std::exp(score - highest);
  for (float& score : scores) score /= sum;
  return scores;
}

std::span<const float> image(const Images& images, int64_t index) {
  return std::span(images.pixels)
      .subspan(static_cast<size_t>(index * images.size), static_cast<size_t>(images.size));
}

// Gradient of the mean cross entropy over images first, first + stride, … (kBatch of them at most).
void add_gradient(const Images& images, int64_t first, int64_t stride, std::span<const float> weights,
                  std::span<float> gradient) {
  std::fill(gradient.begin(), gradient.end(), 0.0f);
  for (int64_t i = 0; i < kBatch; ++i) {
    const int64_t index = first + i * stride;
    if (index >= images.count) return;
    const std::span<const float> pixels = image(images, index);
    std::array<float, kClasses> error = predict(weights, pixels);
    error[images.labels[static_cast<size_t>(index)]] -= 1;
    const size_t row = pixels.size() + 1;
    for (size_t c = 0; c < kClasses; ++c) {
      const float scaled = error[c] / kBatch;
      for (size_t p = 0; p < pixels.size(); ++p) gradient[c * row + p] += scaled * pixels[p];
      gradient[c * row + pixels.size()] += scaled;
    }
  }
}

// {right answers, images} of this rank's part.
std::array<double, 2> count_right(const Images& images, std::span<const float> weights) {
  std::array<double, 2> counts{};
  for (int64_t i = rueda::rank(); i < images.count; i += rueda::size()) {
    const auto guess = predict(weights, image(images, i));
    const auto best = std::max_element(guess.begin(), guess.end()) - guess.begin();
    counts[0] += best == images.labels[static_cast<size_t>(i)] ? 1 : 0;
    counts[1] += 1;
  }
  return counts;
}

rueda::Outcome train(const Images& training, const Images& test) {
  const int64_t ranks = rueda::size();
  std::vector<float> weights(static_cast<size_t>(kClasses * (training.size + 1)));
  auto shared = rueda::SharedBuffer<float>::make(weights.size());  // rueda: no copy on one host
  if (!shared.ok()) return shared.outcome();
  const std::span<float> gradient = shared.value().values();
  if (auto sent = rueda::broadcast(weights, 0, "weights"); !sent.ok()) return sent;  // rueda
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    for (int64_t first = 0; first + ranks * kBatch <= training.count; first += ranks * kBatch) {
      add_gradient(training, first + rueda::rank(), ranks, weights, gradient);
      if (auto mean = rueda::allreduce(gradient, "gradient"); !mean.ok()) return mean;  // rueda
      for (size_t i = 0; i < weights.size(); ++i) weights[i] -= kRate * gradient[i];
    }
    std::array<double, 2> right = count_right(test, weights);
    if (auto sum = rueda::allreduce(right, "accuracy", {.op = rueda::Op::kSum}); !sum.ok()) return sum;
    if (rueda::rank() == 0)
      std::printf("epoch %d  test accuracy %.2f %%\n", epoch, 100 * right[0] / right[1]);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    std::puts("softmax_regression [FOLDER]: trains on the four IDX files there, or on synthetic data");
    return argc == 2 && std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  rueda::Session session;
  rueda::Outcome outcome = session.init();  // rueda
  if (outcome.ok()) {
    const std::string folder = argc > 1 ? argv[1] : "";
    auto training = folder.empty() ? make_synthetic(20'000, 2) : read_idx(folder, "train");
    auto test = folder.empty() ? make_synthetic(2'000, 3) : read_idx(folder, "t10k");
    if (!training || !test) {
      std::fprintf(stderr, "softmax_regression: the four IDX files are not in %s; gunzip them there.\n",
                   folder.c_str());
      return 1;
    }
    outcome = train(*training, *test);
  }
  if (!outcome.ok()) std::fprintf(stderr, "softmax_regression: %s\n", outcome.why.c_str());
  return outcome.ok() ? 0 : 1;
}
