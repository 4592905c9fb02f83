#include "rueda/base/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <array>
#include <cerrno>

namespace rueda::base_socket_test {
namespace {

using testing::HasSubstr;

UniqueFd listening(const std::string& host = "127.0.0.1", uint16_t port = 0) {
  return open_listening(make_tcp_address(host, port).value(), 8).value();
}

TEST(SocketAddress, numeric_texts_are_read_back_and_anything_else_is_refused) {
  for (const std::string text : {"127.0.0.1:80", "10.1.2.3:65535", "[::1]:5000", "[fe80::1]:1"}) {
    const Result<SocketAddress> address = parse_tcp_address(text);
    ASSERT_TRUE(address.is_ok()) << text;
    EXPECT_EQ(host_and_port(address.value().ip(), address.value().port()), text);
  }
  for (const std::string text : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "host:80",
                                 "127.0.0.1:80x", ":80", "1.2.3:80", "[::1:80"})
    EXPECT_FALSE(parse_tcp_address(text).is_ok()) << text;
  EXPECT_TRUE(is_ip_literal("::1"));
  EXPECT_FALSE(is_ip_literal("localhost"));
}

TEST(SocketAddress, knows_loopback_and_families_without_ip) {
  EXPECT_TRUE(make_tcp_address("127.3.0.1", 1).value().is_loopback());
  EXPECT_TRUE(make_tcp_address("::1", 1).value().is_loopback());
  EXPECT_FALSE(make_tcp_address("10.0.0.1", 1).value().is_loopback());
  const SocketAddress local = make_abstract_address("name");
  EXPECT_EQ(local.ip(), "");
  EXPECT_EQ(local.port(), 0);
  EXPECT_FALSE(local.is_loopback());
}

TEST(Socket, callers_are_accepted_on_the_address_that_was_asked_for) {
  const UniqueFd listener = listening();
  const SocketAddress address = own_address(listener.get());
  EXPECT_EQ(address.ip(), "127.0.0.1");
  EXPECT_FALSE(accept_caller(listener.get()).is_open());
  EXPECT_EQ(errno, EAGAIN) << "nobody is waiting";
  const UniqueFd dialler = open_socket(AF_INET).value();
  ASSERT_TRUE(begin_connecting(dialler.get(), address).is_ok());
  pollfd writable{dialler.get(), POLLOUT, 0};
  ASSERT_EQ(poll(&writable, 1, 10'000), 1);
  EXPECT_TRUE(connection_result(dialler.get()).is_ok());
  EXPECT_TRUE(is_same_host(dialler.get()));
  EXPECT_TRUE(accept_caller(listener.get()).is_open());
}

TEST(Socket, a_dial_that_nobody_answers_is_unavailable) {
  const SocketAddress address = own_address(listening().get());  // which is closed again
  const UniqueFd dialler = open_socket(AF_INET).value();
  Status status = begin_connecting(dialler.get(), address).status();
  pollfd writable{dialler.get(), POLLOUT, 0};
  if (status.is_ok() && poll(&writable, 1, 10'000) == 1) status = connection_result(dialler.get());
  EXPECT_EQ(status.code, Code::kUnavailable);
}

TEST(Socket, a_dial_that_met_itself_is_unavailable) {
  const UniqueFd fd = open_socket(AF_INET).value();
  const SocketAddress any = make_tcp_address("127.0.0.1", 0).value();
  ASSERT_EQ(bind(fd.get(), any.get(), any.size), 0);
  ASSERT_TRUE(begin_connecting(fd.get(), own_address(fd.get())).is_ok());
  EXPECT_THAT(connection_result(fd.get()).why, HasSubstr("nobody listens there"));
}

TEST(Socket, the_two_ends_of_a_pair_without_addresses_are_not_one) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  EXPECT_TRUE(connection_result(one.get()).is_ok());
}

TEST(Socket, a_port_in_use_is_named_with_what_to_do) {
  const UniqueFd first = listening();
  const SocketAddress taken = own_address(first.get());
  const Status status = open_listening(taken, 8).status();
  EXPECT_EQ(status.code, Code::kUnavailable);
  EXPECT_EQ(status.why,
            "port " + std::to_string(taken.port()) +
                " of 127.0.0.1 is in use by another process; name another port or end that process");
}

TEST(Socket, a_port_with_a_lingering_connection_can_be_listened_on_again) {
  UniqueFd first = listening();
  const SocketAddress address = own_address(first.get());
  const UniqueFd dialler = open_socket(AF_INET).value();
  ASSERT_TRUE(begin_connecting(dialler.get(), address).is_ok());
  pollfd waiting{first.get(), POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, 10'000), 1);
  accept_caller(first.get()).reset();  // this end closes first, so this end lingers
  first.reset();
  EXPECT_TRUE(open_listening(address, 8).is_ok());
}

TEST(Socket, an_address_of_another_machine_is_unavailable_and_named) {
  const Status status = open_listening(make_tcp_address("192.0.2.1", 0).value(), 8).status();
  EXPECT_EQ(status.code, Code::kUnavailable);
  EXPECT_THAT(status.why, HasSubstr("cannot listen on 192.0.2.1:0: "));
}

}  // namespace
}  // namespace rueda::base_socket_test
