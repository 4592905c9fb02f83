#include "launch/agent_door.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include "rueda/base/release.h"
#include "rueda/store/socket.h"
#include "rueda/store/world.h"

namespace rueda::launch {
namespace {

constexpr size_t kMaxStrangers = 64;
constexpr Nanos kHelloTime = 10 * kSecond;   // from the handshake to the hello
constexpr Nanos kPartingTime = 2 * kSecond;  // for an agent that is turned away to read why

struct Wanted {
  std::string host;  // "": the one by which other hosts reach this one
  int port = 0;
};

Result<Wanted> parse_wanted(const std::string& text) {
  const size_t colon = text.rfind(':');
  Wanted wanted{.host = colon == std::string::npos ? "" : text.substr(0, colon)};
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  if (wanted.host.starts_with('[') && wanted.host.ends_with(']'))
    wanted.host = wanted.host.substr(1, wanted.host.size() - 2);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), wanted.port);
  const bool is_port = error == std::errc() && end == port.data() + port.size() && !port.empty();
  if (is_port && wanted.port >= 0 && wanted.port <= 65'535) return wanted;
  return Status(
      Code::kInvalidArgument,
      fmt::format("--accept-agents {} is refused: give an address and a port (10.0.0.1:5000), a port, "
                  "or 0 for any",
                  text));
}

bool is_wildcard(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

}  // namespace

Result<std::unique_ptr<AgentDoor>> AgentDoor::open(const std::string& text, Secret secret) {
  const Result<Wanted> wanted = parse_wanted(text);
  if (!wanted.is_ok()) return wanted.status();
  std::string host = wanted.value().host;
  const bool is_open_address = host.empty() || is_wildcard(host);
  Result<std::string> address =
      is_open_address ? store::choose_address("", "") : Result<std::string>(std::string(host));
  if (!address.is_ok()) return address.status();
  if (host.empty()) host = address.value();
  Result<UniqueFd> listener = store::listen_on(host, wanted.value().port);
  if (!listener.is_ok())
    return Status(listener.status().code, fmt::format("--accept-agents {}: {}", text, listener.status().why));
  return std::unique_ptr<AgentDoor>(
      new AgentDoor(std::move(listener).value(), std::move(address).value(), std::move(secret)));
}

AgentDoor::AgentDoor(UniqueFd listener, std::string address, Secret secret)
    : listener_(std::move(listener)), address_(std::move(address)), secret_(std::move(secret)) {}

std::string AgentDoor::url() const {
  return "tcp://" + host_and_port(address_, own_address(listener_.get()).port());
}

void AgentDoor::watch(PollSet& set) {
  set.watch(listener_.get(), POLLIN, [this] { accept_some(); });
  for (Stranger& one : strangers_)
    if (one.fd.is_open()) set.watch(one.fd.get(), POLLIN, [this, &one] { talk(one); });
  for (Guest& one : guests_)
    if (one.link.is_open())
      set.watch(one.link.process().out.get(), POLLIN,
                [&one] { one.link.read_messages([](const AgentMessage&) {}); });
}

void AgentDoor::accept_some() {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    UniqueFd fd = accept_caller(listener_.get());
    if (!fd.is_open()) return;
    if (strangers_.size() >= kMaxStrangers) strangers_.front().fd.reset();  // the oldest gives way
    strangers_.push_back({.fd = std::move(fd),
                          .handshake = Handshake::server(secret_, joining_identity(), kRelease),
                          .until = monotonic_now() + kStrangerTime});
  }
}

void AgentDoor::talk(Stranger& stranger) {
  if (!stranger.fd.is_open()) return;
  std::array<std::byte, kMaxHandshakeBytes> chunk;
  const ssize_t size = read(stranger.fd.get(), chunk.data(), chunk.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return stranger.fd.reset();
  const auto arrived = std::span<const std::byte>(chunk).first(static_cast<size_t>(size));
  const Result<size_t> taken = stranger.handshake.feed(arrived);
  // A few hundred bytes, which the empty buffer of a new connection takes at once.
  const Bytes reply = stranger.handshake.take_output();
  const bool is_sent = write(stranger.fd.get(), reply.data(), reply.size()) == std::ssize(reply);
  if (!taken.is_ok() || !is_sent || taken.value() != arrived.size()) return stranger.fd.reset();
  if (stranger.handshake.is_done()) admit(stranger);
}

void AgentDoor::admit(Stranger& stranger) {
  UniqueFd out(fcntl(stranger.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!out.is_open()) return stranger.fd.reset();
  set_option(stranger.fd.get(), SOL_SOCKET, SO_KEEPALIVE);
  Guest& guest = guests_.emplace_back(
      Guest{.link = HostLink("", StartWay::kJoined), .until = monotonic_now() + kHelloTime});
  guest.link.attach(
      {.pid = 0, .in = std::move(stranger.fd), .out = std::move(out), .err = {}, .is_child = false});
}

void AgentDoor::tick(Nanos now) {
  std::erase_if(strangers_, [now](const Stranger& one) { return !one.fd.is_open() || now >= one.until; });
  guests_.remove_if(
      [now](const Guest& one) { return !one.link.is_open() || (!one.has_arrived() && now >= one.until); });
}

int AgentDoor::waiting_slots() const {
  int slots = 0;
  for (const Guest& one : guests_)
    if (one.has_arrived()) slots += std::max(1, one.link.hello()->slots);
  return slots;
}

std::vector<HostLink> AgentDoor::take() {
  std::vector<HostLink> arrived;
  for (auto one = guests_.begin(); one != guests_.end();) {
    if (!one->has_arrived()) {
      ++one;
      continue;
    }
    one->link.name(one->link.hello()->host);
    arrived.push_back(std::move(one->link));
    one = guests_.erase(one);
  }
  return arrived;
}

void AgentDoor::turn_away(HostLink link, const std::string& why, Nanos now) {
  link.send(MessageType::kRefused, as_bytes(why));
  guests_.push_back({.link = std::move(link), .until = now + kPartingTime, .is_leaving = true});
}

}  // namespace rueda::launch
