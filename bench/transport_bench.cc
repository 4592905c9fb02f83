// Ping-pong latency and 64 MiB bandwidth of a channel between two processes, each spinning briefly, then
// sleeping. Numbers for the cost model and for changes to a transport; nothing asserts them.
//
//   transport_bench            prints, for each transport and size, half the round trip and the bytes
//                              per second
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/transport/shm/shm.h"
#include "rueda/transport/tcp/tcp.h"

namespace {

using rueda::Bytes;
using rueda::Nanos;
using rueda::Rank;
using rueda::transport::Completion;
using rueda::transport::Endpoint;
using rueda::transport::Transport;

constexpr Nanos kSpin = 50 * rueda::kMicrosecond;  // then it sleeps, so that it works on a busy machine, too

std::unique_ptr<Transport> make(const std::string& kind, Rank rank) {
  rueda::transport::Identity identity{
      .job = "bench", .epoch = 0, .rank = rank, .size = 2, .secret = {Bytes(32)}, .release = "bench"};
  if (kind == "tcp") return rueda::transport::make_tcp({.identity = identity}).value();
  return rueda::transport::make_shm({.identity = identity}).value();
}

void await(Transport& transport, size_t count) {
  std::vector<Completion> done;
  const rueda::Deadline deadline = rueda::Deadline::after(60 * rueda::kSecond);
  Nanos idle_since = rueda::monotonic_now();
  while (done.size() < count && !deadline.is_past()) {
    const bool is_moved = transport.progress(done);
    const Nanos now = rueda::monotonic_now();
    if (is_moved) idle_since = now;
    if (now - idle_since < kSpin || !transport.prepare_sleep()) continue;
    std::vector<int> fds;
    transport.wake_fds(fds);
    pollfd polled{fds.at(0), POLLIN, 0};
    poll(&polled, 1, 1000);
    idle_since = rueda::monotonic_now();
  }
  for (const Completion& completion : done)
    RUEDA_CHECK(completion.status.is_ok(), completion.status.why.c_str());
  RUEDA_CHECK(done.size() == count, "the benchmark took longer than a minute");
}

// Median over the rounds, in nanoseconds.
Nanos ping_pong(Transport& transport, Endpoint& channel, Rank me, size_t bytes, int rounds) {
  Bytes out(bytes, std::byte{1}), in(bytes);
  std::vector<Nanos> times;
  for (int i = 0; i < rounds; ++i) {
    const Nanos start = rueda::monotonic_now();
    if (me == 0) channel.send(1, out);
    channel.recv(2, in);
    await(transport, me == 0 ? 2 : 1);
    if (me == 1) {
      channel.send(1, out);
      await(transport, 1);
    }
    times.push_back(rueda::monotonic_now() - start);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}

Nanos exchange(Transport& transport, Endpoint& channel, size_t bytes, int rounds) {
  Bytes out(bytes, std::byte{1}), in(bytes);
  std::vector<Nanos> times;
  for (int i = 0; i < rounds; ++i) {
    const Nanos start = rueda::monotonic_now();
    channel.recv(2, in);
    channel.send(1, out);
    await(transport, 2);
    times.push_back(rueda::monotonic_now() - start);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}

void pin_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof(cores), &cores);  // not on a machine with a single core
}

void run(const std::string& kind, Rank me, int pipe_fd) {
  pin_to_core(me);
  auto transport = make(kind, me);
  // Exchanges addresses through the socket pair that the processes share.
  std::string text = transport->address();
  text.resize(1024, '\0');
  RUEDA_CHECK(write(pipe_fd, text.data(), text.size()) == 1024, "write");
  RUEDA_CHECK(recv(pipe_fd, text.data(), text.size(), MSG_WAITALL) == 1024, "recv");
  const rueda::Status status = transport->connect(1 - me, text.c_str(), 0);
  RUEDA_CHECK(status.is_ok(), status.why.c_str());
  std::vector<Completion> none;
  const rueda::Deadline deadline = rueda::Deadline::after(10 * rueda::kSecond);
  while (transport->endpoint(1 - me, 0) == nullptr && !deadline.is_past()) transport->progress(none);
  Endpoint* channel = transport->endpoint(1 - me, 0);
  RUEDA_CHECK(channel != nullptr, "no connection");
  for (const size_t bytes :
       {size_t{4}, size_t{1024}, size_t{16} << 10, size_t{64} << 10, size_t{1} << 20, size_t{64} << 20}) {
    const int rounds = bytes >= (1 << 20) ? (bytes > (1 << 20) ? 5 : 50) : 1000;
    const double half = static_cast<double>(ping_pong(*transport, *channel, me, bytes, rounds)) / 2;
    const auto both = static_cast<double>(exchange(*transport, *channel, bytes, rounds));
    if (me != 0) continue;
    std::printf("%-4s %9zu bytes  one way %10.2f us %6.2f GB/s   exchange %10.2f us %6.2f GB/s each way\n",
                kind.c_str(), bytes, half / 1e3, static_cast<double>(bytes) / half, both / 1e3,
                static_cast<double>(bytes) / both);
    std::fflush(stdout);
  }
}

}  // namespace

int main() {
  for (const std::string kind : {"shm", "tcp"}) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 1;
    const pid_t child = fork();
    if (child == 0) {
      run(kind, 1, pair[1]);
      _exit(0);
    }
    run(kind, 0, pair[0]);
    waitpid(child, nullptr, 0);
  }
  return 0;
}
