#include "rueda/transport/shm/descriptors.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "rueda/base/check.h"

namespace rueda::transport {

bool send_descriptors(int socket, uint32_t magic, std::span<const int> descriptors) {
  RUEDA_CHECK(descriptors.size() <= kMaxDescriptors, "a message carries so many descriptors");
  iovec part{&magic, sizeof(magic)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = space.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof(magic));
}

ReceivedDescriptors receive_descriptors(int socket, uint32_t magic) {
  using Receipt = ReceivedDescriptors::Receipt;
  uint32_t word = 0;
  iovec part{&word, sizeof(word)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  ReceivedDescriptors received;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return received;
  if (got <= 0) {
    received.state = Receipt::kClosed;
    return received;
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      received.descriptors.emplace_back(fd);
    }
  }
  const bool is_whole = got == static_cast<ssize_t>(sizeof(word)) && word == magic;
  received.state = is_whole ? Receipt::kReceived : Receipt::kGarbage;
  const bool is_cut = (message.msg_flags & MSG_CTRUNC) != 0;
  if (is_whole && is_cut && received.descriptors.size() < kMaxDescriptors) received.state = Receipt::kNoRoom;
  return received;
}

}  // namespace rueda::transport
