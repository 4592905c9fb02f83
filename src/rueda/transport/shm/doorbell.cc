#include "rueda/transport/shm/doorbell.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "rueda/base/check.h"
#include "rueda/base/descriptors.h"
#include "rueda/base/socket.h"

namespace rueda::transport {
namespace {

constexpr std::byte kNews{1};
constexpr int kTakenAtOnce = 64;  // strangers must not keep this rank here

Status cannot_have_doorbell(int error) {
  if (is_out_of_descriptors(error)) return out_of_descriptors(error);
  return {Code::kUnavailable,
          std::string("cannot have a doorbell for the ranks of this host: ") + std::strerror(error) + "."};
}

}  // namespace

Result<std::unique_ptr<Doorbell>> Doorbell::open(std::string_view name, Poller& poller) {
  RUEDA_CHECK(name.size() <= kMaxNameBytes, "the name of a doorbell is bounded");
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return cannot_have_doorbell(errno);
  socket.close_on_fork();
  const SocketAddress address = make_abstract_address(name);
  if (bind(socket.get(), address.get(), address.size) != 0) return cannot_have_doorbell(errno);
  std::unique_ptr<Doorbell> self(
      new Doorbell(name, std::move(socket), poller));  // NOLINT: the constructor is private
  if (Status s = poller.add(self->socket_.get(), self->watch_, EPOLLIN); !s.is_ok()) return s;
  return self;
}

Doorbell::Doorbell(std::string_view name, UniqueFd socket, Poller& poller)
    : name_(name), socket_(std::move(socket)), poller_(poller) {}

Doorbell::~Doorbell() { poller_.remove(socket_.get()); }

bool Doorbell::ring(std::string_view name, Rung why) const {
  const SocketAddress address = make_abstract_address(name);
  const size_t bytes = why == Rung::kForNews ? sizeof(kNews) : 0;
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  return sendto(socket_.get(), &kNews, bytes, kFlags, address.get(), address.size) >= 0 || errno == EAGAIN ||
         errno == EWOULDBLOCK;
}

// Several datagrams may be all that has fitted, and so hide that somebody wanted to tell news.
Doorbell::Rung Doorbell::take() {
  if (watch_.ready == 0) return Rung::kNo;
  std::array<std::byte, 8> datagram;
  int taken = 0;
  bool is_news = false;
  for (; taken < kTakenAtOnce; ++taken) {
    const ssize_t got = recv(socket_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT);
    if (got < 0) break;
    is_news = is_news || got > 0;
  }
  if (taken < kTakenAtOnce) watch_.ready = 0;  // empty
  if (taken == 0) return Rung::kNo;
  return is_news || taken > 1 ? Rung::kForNews : Rung::kForData;
}

}  // namespace rueda::transport
