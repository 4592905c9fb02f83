#include "rueda/status/elastic_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "rueda/base/sleep.h"
#include "rueda/base/unique_fd.h"

namespace rueda::status {
namespace {

constexpr Nanos kAnswerPause = 200'000;  // 0.2 ms, between looks at the answer

// round: 16 bits, phase: 2, flags: 3, commit + 1: 43
constexpr int kCommitBits = 43;
constexpr uint64_t kCommitMask = (uint64_t{1} << kCommitBits) - 1;

uint64_t pack(const ViewChange& change) {
  const uint64_t flags = (change.are_hosts_added ? 1U : 0U) | (change.are_hosts_removed ? 2U : 0U) |
                         (change.does_leave ? 4U : 0U);
  return (uint64_t{change.round} << 48) | (static_cast<uint64_t>(change.phase) << 46) |
         (flags << kCommitBits) | (static_cast<uint64_t>(change.commit + 1) & kCommitMask);
}

ViewChange unpack(uint64_t word) {
  const uint64_t flags = (word >> kCommitBits) & 7;
  return {.round = static_cast<uint16_t>(word >> 48),
          .phase = static_cast<ViewChange::Phase>((word >> 46) & 3),
          .commit = static_cast<int64_t>(word & kCommitMask) - 1,
          .are_hosts_added = (flags & 1) != 0,
          .are_hosts_removed = (flags & 2) != 0,
          .does_leave = (flags & 4) != 0};
}

}  // namespace

ElasticBoard::ElasticBoard(ElasticBoard&& other) noexcept : words_(std::exchange(other.words_, nullptr)) {}

ElasticBoard& ElasticBoard::operator=(ElasticBoard&& other) noexcept {
  std::swap(words_, other.words_);
  return *this;
}

ElasticBoard::~ElasticBoard() {
  if (words_ != nullptr) munmap(words_, sizeof(Words));
}

Result<ElasticBoard> ElasticBoard::map(const std::string& path, int flags) {
  const UniqueFd fd(::open(path.c_str(), flags, S_IRUSR | S_IWUSR));
  const bool is_ready = fd.is_open() && ((flags & O_CREAT) == 0 || ftruncate(fd.get(), sizeof(Words)) == 0);
  void* const memory =
      is_ready ? mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0) : MAP_FAILED;
  if (memory == MAP_FAILED)
    return Status(Code::kUnavailable, "cannot map " + path + ": " + std::strerror(errno));
  return ElasticBoard(static_cast<Words*>(memory));
}

Result<ElasticBoard> ElasticBoard::make(const std::string& path) {
  Result<ElasticBoard> made = map(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC);
  if (!made.is_ok()) return made;
  new (made.value().words_) Words{};
  made.value().words_->commit = -1;
  made.value().write({});
  return made;
}

Result<ElasticBoard> ElasticBoard::open(const std::string& path) { return map(path, O_RDWR | O_CLOEXEC); }

void ElasticBoard::write(const ViewChange& change) {
  words_->change.store(pack(change), std::memory_order_release);
}

int ElasticBoard::answer(uint16_t round) const {
  const uint32_t answered = words_->answered.load(std::memory_order_acquire);
  if (answered / 2 != round) return 0;
  return answered % 2 == 1 ? 1 : -1;
}

ViewChange ElasticBoard::read() const { return unpack(words_->change.load(std::memory_order_acquire)); }

void ElasticBoard::answer_proposal(const ViewChange& change, int64_t commit) {
  const uint32_t in_time = commit <= change.commit ? 1 : 0;
  words_->answered.store(uint32_t{change.round} * 2 + in_time, std::memory_order_release);
}

void ElasticBoard::committed(int64_t commit, Nanos at_most) {
  words_->commit.store(commit, std::memory_order_release);
  const Deadline deadline = Deadline::after(at_most);
  while (true) {
    const ViewChange change = read();
    if (change.phase != ViewChange::Phase::kProposed) return;
    if (answer(change.round) == 0) answer_proposal(change, commit);
    if (commit != change.commit || answer(change.round) != 1 || deadline.is_past()) return;
    sleep_for(kAnswerPause);
  }
}

}  // namespace rueda::status
