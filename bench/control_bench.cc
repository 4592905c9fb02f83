// What the coordination of a step costs in jobs larger than any machine here: the control code of the root
// and of the leaders takes and makes the real messages of a step in which every rank submits 161 tensors, and
// its CPU time is measured. A message's own cost is measured once, over TCP on this machine. From these two
// the program computes, in virtual time, when the last rank has its answer. Usage:
//   control_bench [--hosts-of 8] [--hop-us 25] [ranks …]
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "rueda/control/planner.h"
#include "rueda/control/relay.h"
#include "rueda/control/request_reader.h"
#include "rueda/control/rounds.h"
#include "rueda/control/statement.h"

namespace {

using namespace rueda;
using namespace rueda::control;

constexpr int kTensors = 161;  // gradients of ResNet-50
constexpr Rank kFanOut = 16;   // as runtime/hierarchy.h
constexpr int kSteps = 9;      // of which the median counts
constexpr double kMicrosecond = 1e3;

double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / kMicrosecond;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::vector<Request> step_of_tensors() {
  std::vector<Request> all;
  for (int i = 0; i < kTensors; ++i) {
    TensorRequest request;
    request.name = "gradient.layer" + std::to_string(i / 3) + ".conv" + std::to_string(i % 3) + ".weight";
    request.shape = {64, 64, 3, 3};
    all.emplace_back(std::move(request));
  }
  return all;
}

// One end sends, the other takes; both in this thread, so that all the work of the kernel is counted.
struct MessageCost {
  double send_us = 0, take_us = 0;
};

MessageCost measure_message() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, raw, size) != 0 || listen(listener, 1) != 0 || getsockname(listener, raw, &size) != 0)
    return {};
  const int one_end = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(one_end, raw, size) != 0) return {};
  const int other_end = accept(listener, nullptr, nullptr);
  const int on = 1;
  setsockopt(one_end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::array<char, 64> bytes{};
  std::vector<double> sends, takes;
  for (int i = 0; i < 5'000; ++i) {
    const double begin = cpu_us();
    if (send(one_end, bytes.data(), bytes.size(), 0) < 0) return {};
    const double sent = cpu_us();
    if (recv(other_end, bytes.data(), bytes.size(), MSG_WAITALL) < 0) return {};
    sends.push_back(sent - begin);
    takes.push_back(cpu_us() - sent);
  }
  for (const int fd : {listener, one_end, other_end}) close(fd);
  return {.send_us = median(sends), .take_us = median(takes)};
}

// What arrives at the root or at a leader in a step: who says it, and the payload of the message.
struct Arriving {
  Rank child = 0;
  RankSet from;
  Bytes payload;  // of requests, or of statements
  bool are_statements = false;
};

class Root {
 public:
  explicit Root(Rank ranks)
      : planner_({.may_plan = false, .ranks = ranks}), rounds_(options(ranks), {}, planner_) {}

  // Microseconds of CPU until the answer can be sent.
  double step(const std::vector<Arriving>& arriving, const std::vector<Request>& own) {
    const double begin = cpu_us();
    rounds_.submitted(0, 0, own, 0, nullptr);
    for (const Arriving& one : arriving) {
      if (!one.are_statements) {
        take(one.from, one.payload);
        continue;
      }
      const std::vector<Statement> statements = decode_statements(one.payload).value();
      for (const Statement& statement : statements) take(statement.from, statement.payload);
    }
    answer_ = encode(rounds_.take_round(0, 0));
    return cpu_us() - begin;
  }
  [[nodiscard]] const Bytes& answer() const { return answer_; }

 private:
  static CoordinatorOptions options(Rank ranks) {
    CoordinatorOptions options;
    options.world_size = ranks;
    return options;
  }
  void take(const RankSet& from, const Bytes& payload) {
    const SharedSubmitted submitted = reader_.read(payload).value();
    rounds_.submitted(from, submitted.plans_begun, submitted.requests, 0, nullptr);
  }

  RequestReader reader_;
  Planner planner_;
  Rounds rounds_;
  Bytes answer_;
};

struct Level {
  double cpu_us = 0;  // of one leader: what comes from below becomes one message
  Rank children = 0;
};

// A leader whose children have said this; what it passes on.
Bytes lead(const RankSet& below, Rank me, const std::vector<Arriving>& arriving, const Bytes& own,
           Level& level) {
  std::vector<double> times;
  Bytes message;
  for (int step = 0; step < kSteps; ++step) {
    Relay relay({.below = below, .sets = {}});
    const double begin = cpu_us();
    (void)relay.take(me, {.from = me, .type = MessageType::kRequests, .payload = own}, 0);
    for (const Arriving& one : arriving) {
      if (!one.are_statements) {
        (void)relay.take(one.child,
                         {.from = one.from, .type = MessageType::kRequests, .payload = one.payload}, 0);
        continue;
      }
      std::vector<Statement> statements = decode_statements(one.payload).value();
      for (Statement& statement : statements) (void)relay.take(one.child, std::move(statement), 0);
    }
    message = encode(relay.due(0));
    times.push_back(cpu_us() - begin);
  }
  level = {.cpu_us = median(times), .children = static_cast<Rank>(arriving.size())};
  return message;
}

class Tree {
 public:
  Tree(Rank ranks, Rank per_host, Bytes payload)
      : ranks_(ranks), per_host_(per_host), payload_(std::move(payload)) {}

  // What arrives at this leader; with the first leader of each level, what that level costs.
  std::vector<Arriving> arriving_at(Rank leader, size_t depth) {
    std::vector<Arriving> all;
    const Rank end = std::min(leader + per_host_, ranks_);
    for (Rank rank = leader + 1; rank < end; ++rank)
      all.push_back({.child = rank, .from = rank, .payload = payload_, .are_statements = false});
    const Rank host = leader / per_host_;
    for (Rank child = host * kFanOut + 1; child <= host * kFanOut + kFanOut; ++child) {
      const Rank rank = child * per_host_;
      if (rank >= ranks_) break;
      Level level;
      const RankSet below = below_of(rank);
      const std::vector<Arriving> from_below = arriving_at(rank, depth + 1);
      Bytes message = lead(below, rank, from_below, payload_, level);
      if (levels_.size() <= depth) levels_.resize(depth + 1);
      if (level.cpu_us > levels_[depth].cpu_us) levels_[depth] = level;
      all.push_back({.child = rank, .from = below, .payload = std::move(message), .are_statements = true});
    }
    return all;
  }
  [[nodiscard]] const std::vector<Level>& levels() const { return levels_; }  // below the root

 private:
  RankSet below_of(Rank leader) const {
    RankSet below = RankSet::from_to(leader, std::min(leader + per_host_, ranks_) - 1);
    const Rank host = leader / per_host_;
    for (Rank child = host * kFanOut + 1; child <= host * kFanOut + kFanOut; ++child)
      if (child * per_host_ < ranks_) below.add(below_of(child * per_host_));
    return below;
  }

  Rank ranks_, per_host_;
  Bytes payload_;
  std::vector<Level> levels_;
};

double root_us(Rank ranks, const std::vector<Arriving>& arriving) {
  const std::vector<Request> own = step_of_tensors();
  Root root(ranks);
  std::vector<double> times;
  for (int step = 0; step < kSteps; ++step) times.push_back(root.step(arriving, own));
  return median(times);
}

struct Options {
  Rank per_host = 8;
  double hop_us = 25;
  std::vector<Rank> sizes;
};

void print_row(Rank ranks, const Options& options, const MessageCost& message) {
  const Bytes payload = encode(0, step_of_tensors());
  std::vector<Arriving> star;
  for (Rank rank = 1; rank < ranks; ++rank)
    star.push_back({.child = rank, .from = rank, .payload = payload, .are_statements = false});
  const auto with_messages = [&](double cpu, size_t children) {
    return cpu + static_cast<double>(children) * (message.take_us + message.send_us);
  };
  const double star_us = with_messages(root_us(ranks, star), star.size());
  Tree tree(ranks, options.per_host, payload);
  const std::vector<Arriving> top = tree.arriving_at(0, 0);
  const double tree_us = with_messages(root_us(ranks, top), top.size());
  // Up and down: a hop to each level, whose leader does its work, and sends the answer on before it reads it.
  double path = tree_us + 2 * options.hop_us;
  double leader = 0;
  for (const Level& level : tree.levels()) {
    const double cpu = with_messages(level.cpu_us, static_cast<size_t>(level.children));
    path += cpu + 2 * options.hop_us;
    leader = std::max(leader, cpu);
  }
  std::printf("| %d | %zu | %.0f | %.0f | %zu | %.0f | %.0f | %.0f |\n", ranks, star.size(), star_us,
              star_us + 2 * options.hop_us, top.size(), tree_us, leader, path);
  std::fflush(stdout);
}

int usage(const std::string& argument) {
  std::fprintf(stderr,
               "control_bench: '%s' is no number of ranks from 2 up\n"
               "control_bench [--hosts-of RANKS] [--hop-us US] [NUMBER OF RANKS]...\n",
               argument.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--hosts-of" && has_value)
      options.per_host = std::max(std::atoi(argv[++i]), 1);
    else if (argument == "--hop-us" && has_value)
      options.hop_us = std::atof(argv[++i]);
    else if (std::atoi(argv[i]) >= 2)
      options.sizes.push_back(std::atoi(argv[i]));
    else
      return usage(argument);
  }
  if (options.sizes.empty()) options.sizes = {16, 64, 256, 1'024, 4'096, 16'384};
  const MessageCost message = measure_message();
  std::printf("A message of 64 bytes over TCP: %.2f us of CPU to send, %.2f us to take. A hop: %.0f us.\n",
              message.send_us, message.take_us, options.hop_us);
  std::printf("Hosts of %d ranks, a step of %d tensors; all times in us.\n\n", options.per_host, kTensors);
  std::printf(
      "| ranks | star: messages | root | until all have the answer | tree: messages | root | busiest leader "
      "| until all have the answer |\n|---|---|---|---|---|---|---|---|\n");
  for (const Rank ranks : options.sizes) print_row(ranks, options, message);
  return 0;
}
