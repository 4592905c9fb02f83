#include "launch/rank_process.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace rueda::launch {
namespace {

// The pipe of a dead rank holds at most 1 MiB, but its children may go on writing.
constexpr int kMaxDrainReads = 4096;

}  // namespace

bool pass_output(RankProcess& rank, Stream stream, const SendMessage& send) {
  std::array<std::byte, kMaxOutputBytes - 64> chunk;
  const int fd = stream == Stream::kStdout ? rank.out.get() : rank.err.get();
  const ssize_t size = read(fd, chunk.data(), chunk.size());
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  ByteWriter writer;
  writer.put(rank.job.rank);
  writer.put(stream);
  writer.put_raw(std::span(chunk).first(static_cast<size_t>(size)));
  send(MessageType::kOutput, writer.bytes());
  return true;
}

void drain(RankProcess& rank, const SendMessage& send) {
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    UniqueFd& fd = stream == Stream::kStdout ? rank.out : rank.err;
    for (int reads = 0; fd.is_open() && reads < kMaxDrainReads; ++reads) {
      pollfd readable{.fd = fd.get(), .events = POLLIN, .revents = 0};
      if (poll(&readable, 1, 0) != 1) break;
      if (!pass_output(rank, stream, send)) fd.reset();
    }
  }
}

}  // namespace rueda::launch
