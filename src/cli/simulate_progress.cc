#include "cli/simulate_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "rueda/base/clock.h"

namespace rueda::cli {
namespace {

constexpr Nanos kFirst = kSecond, kEach = 200 * kMillisecond;

void rewrite(std::string_view text) {
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
}

}  // namespace

SimulateProgress::SimulateProgress()
    : is_terminal_(isatty(STDERR_FILENO) != 0), next_(monotonic_now() + kFirst) {}

SimulateProgress::~SimulateProgress() {
  if (is_shown_) rewrite("");
}

void SimulateProgress::show(const simulate::Progress& progress) {
  if (!is_terminal_) return;
  const Nanos now = monotonic_now();
  if (now < next_) return;
  next_ = now + kEach;
  is_shown_ = true;
  rewrite(fmt::format("rueda simulate: {} ranks, step {} of {}{} …", progress.ranks, progress.step,
                      progress.steps, progress.is_of_losses ? " without some of what costs time" : ""));
}

}  // namespace rueda::cli
