#include "rueda/status/metrics_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "rueda/base/socket.h"
#include "rueda/status/scrape.h"
#include "rueda/status/token_file.h"

namespace rueda::status::metrics_port_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr Nanos kPortPatience = 20 * kSecond;
const std::string kSecretToken = std::string(64, 'a');
const std::string kGoodRequest =
    "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + kSecretToken + "\r\n\r\n";

SocketAddress loopback(uint16_t port = 0) { return make_tcp_address("127.0.0.1", port).value(); }

std::unique_ptr<MetricsPort> opened(Nanos caller_time = kCallerTime) {
  auto port = MetricsPort::open(
      loopback(), kSecretToken, [] { return std::string("rueda_up 1\n"); }, caller_time);
  EXPECT_TRUE(port.is_ok()) << port.status().why;
  return std::move(port).value();
}

UniqueFd connect_to_port(uint16_t port) {
  const SocketAddress address = loopback(port);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), address.get(), address.size), 0);
  return fd;
}

void say(const UniqueFd& fd, const std::string& text) {
  EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// Until the end of the stream.
std::string hear_all(const UniqueFd& fd) {
  std::string heard;
  const Deadline deadline = Deadline::after(kPortPatience);
  while (true) {
    pollfd polled{.fd = fd.get(), .events = POLLIN, .revents = 0};
    if (poll(&polled, 1, deadline.timeout_ms()) <= 0) return heard + "<no end>";
    char piece[4096];
    const ssize_t got = recv(fd.get(), piece, sizeof(piece), 0);
    if (got < 0) return heard + "<reset>";
    if (got == 0) return heard;
    heard.append(piece, static_cast<size_t>(got));
  }
}

std::string reply_to(uint16_t port, const std::string& text) {
  const UniqueFd fd = connect_to_port(port);
  say(fd, text);
  return hear_all(fd);
}

TEST(MetricsPort, answers_who_shows_the_token) {
  const auto port = opened();
  for (int i = 0; i < 3; ++i) {
    const std::string reply = reply_to(port->port(), kGoodRequest);
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(reply, EndsWith("\r\n\r\nrueda_up 1\n"));
  }
}

TEST(MetricsPort, refuses_everybody_else) {
  const auto port = opened();
  EXPECT_THAT(reply_to(port->port(), "GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(reply_to(port->port(), "\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(reply_to(port->port(), "POST" + kGoodRequest.substr(3)), StartsWith("HTTP/1.1 405 "));
}

TEST(MetricsPort, a_request_may_come_byte_by_byte) {
  const auto port = opened();
  const UniqueFd fd = connect_to_port(port->port());
  set_option(fd.get(), IPPROTO_TCP, 1 /* TCP_NODELAY */);
  for (const char byte : kGoodRequest) say(fd, std::string(1, byte));
  EXPECT_THAT(hear_all(fd), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(MetricsPort, a_head_that_is_too_long_is_refused_though_its_caller_goes_on) {
  const auto port = opened();
  const UniqueFd fd = connect_to_port(port->port());
  say(fd, "GET /metrics HTTP/1.1\r\nX: " + std::string(3 * kMaxHeadBytes, 'x'));
  EXPECT_THAT(hear_all(fd), StartsWith("HTTP/1.1 431 "));
}

TEST(MetricsPort, a_caller_that_says_nothing_is_hung_up_on) {
  const auto port = opened(50 * kMillisecond);
  const UniqueFd fd = connect_to_port(port->port());
  say(fd, "GET /metr");
  EXPECT_EQ(hear_all(fd), "");
}

TEST(MetricsPort, callers_that_say_nothing_keep_nobody_waiting) {
  const auto port = opened(kLongestTime);
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < 3 * kMaxCallers; ++i) silent.push_back(connect_to_port(port->port()));
  EXPECT_THAT(reply_to(port->port(), kGoodRequest), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(hear_all(silent.front()), "");  // the oldest gave way
}

TEST(MetricsPort, a_text_larger_than_the_socket_takes_at_once_arrives_whole) {
  const auto port = MetricsPort::open(loopback(), kSecretToken, [] { return std::string(8 << 20, 'x'); });
  const std::string reply = reply_to(port.value()->port(), kGoodRequest);
  EXPECT_EQ(reply.size() - reply.find("\r\n\r\n") - 4, size_t{8} << 20);
}

TEST(MetricsPort, listens_on_the_loopback_alone) {
  const auto port = opened();
  std::ifstream table("/proc/net/tcp");
  char ending[16];
  std::snprintf(ending, sizeof(ending), ":%04X 00000000", port->port());
  std::vector<std::string> found;
  for (std::string line; std::getline(table, line);)
    if (line.find(ending) != std::string::npos) found.push_back(line);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0], HasSubstr("0100007F:"));
}

TEST(MetricsPort, listens_where_it_is_told) {
  const auto port = MetricsPort::open(make_tcp_address("0.0.0.0", 0).value(), kSecretToken,
                                      [] { return std::string("rueda_up 1\n"); });
  ASSERT_TRUE(port.is_ok()) << port.status().why;
  const SocketAddress address = make_tcp_address("127.0.0.2", port.value()->port()).value();
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(fd.get(), address.get(), address.size), 0);
  say(fd, kGoodRequest);
  EXPECT_THAT(hear_all(fd), StartsWith("HTTP/1.1 200 OK\r\n"));
  const auto elsewhere = make_tcp_address("192.0.2.7", 0).value();
  EXPECT_FALSE(MetricsPort::open(elsewhere, kSecretToken, [] { return std::string(); }).is_ok());
}

TEST(MetricsPort, a_port_in_use_is_refused_by_number_and_free_again_at_the_end) {
  auto port = opened();
  const uint16_t number = port->port();
  const auto refused = MetricsPort::open(loopback(number), kSecretToken, [] { return std::string(); });
  EXPECT_THAT(refused.status().why, HasSubstr("port " + std::to_string(number)));
  EXPECT_THAT(reply_to(number, kGoodRequest), StartsWith("HTTP/1.1 200 "));
  port.reset();
  EXPECT_TRUE(MetricsPort::open(loopback(number), kSecretToken, [] { return std::string(); }).is_ok());
}

TEST(MetricsPort, the_end_does_not_wait_for_callers) {
  auto port = opened(kLongestTime);
  const UniqueFd fd = connect_to_port(port->port());
  say(fd, "GET /metr");
  port.reset();
  EXPECT_THAT(hear_all(fd), testing::AnyOf("", "<reset>"));
}

class TokenFile : public testing::Test {
 protected:
  TokenFile() {
    std::string pattern = testing::TempDir() + "rueda_token_XXXXXX";
    base_ = mkdtemp(pattern.data());
    path_ = base_ + "/token";
  }
  ~TokenFile() override { std::filesystem::remove_all(base_); }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] unsigned mode() const {
    struct stat about {};
    stat(path_.c_str(), &about);
    return about.st_mode & 0777;
  }
  std::string base_, path_;
};

TEST_F(TokenFile, a_new_one_is_for_this_user_alone) {
  ASSERT_TRUE(write_token_file(path_, "one").is_ok());
  EXPECT_EQ(text(), "one\n");
  EXPECT_EQ(mode(), 0600u);
}

TEST_F(TokenFile, one_that_exists_keeps_the_group_that_may_read_it) {
  std::ofstream(path_) << "a longer text than the token";
  chmod(path_.c_str(), 0640);
  ASSERT_TRUE(write_token_file(path_, "one").is_ok());
  EXPECT_EQ(text(), "one\n");
  EXPECT_EQ(mode(), 0640u);
}

TEST_F(TokenFile, one_that_others_may_read_or_write_is_refused_and_left_alone) {
  std::ofstream(path_) << "mine";
  for (const mode_t mode : {0644, 0602, 0660}) {
    chmod(path_.c_str(), mode);
    EXPECT_THAT(write_token_file(path_, "one").why, HasSubstr("run chmod 600 or 640 on it"));
  }
  EXPECT_EQ(text(), "mine");
}

TEST_F(TokenFile, is_removed_at_the_end_unless_another_job_has_written_its_token) {
  ASSERT_TRUE(write_token_file(path_, "one").is_ok());
  remove_token_file(path_, "on");
  remove_token_file(path_, "other");
  remove_token_file(base_ + "/none", "one");
  EXPECT_EQ(text(), "one\n");
  remove_token_file(path_, "one");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TokenFile, a_link_a_pipe_and_a_missing_folder_are_refused) {
  std::filesystem::create_symlink(base_ + "/elsewhere", path_);
  EXPECT_FALSE(write_token_file(path_, "one").is_ok());
  EXPECT_FALSE(std::filesystem::exists(base_ + "/elsewhere"));
  ASSERT_EQ(mkfifo((base_ + "/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(write_token_file(base_ + "/pipe", "one").is_ok());
  EXPECT_THAT(write_token_file(base_ + "/none/token", "one").why, HasSubstr(base_ + "/none/token"));
}

TEST_F(TokenFile, gives_the_token_if_nobody_may_write_it) {
  EXPECT_EQ(given_token(path_).value(), "");  // there is none
  std::ofstream(path_) << kSecretToken << "\n";
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  EXPECT_EQ(given_token(path_).value(), "");  // to be written
  ASSERT_EQ(chmod(path_.c_str(), 0440), 0);
  const std::string link = base_ + "/link";  // as kubelet mounts Secrets
  ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_EQ(given_token(path_).value(), kSecretToken);
  EXPECT_EQ(given_token(link).value(), kSecretToken);
  ASSERT_EQ(chmod(path_.c_str(), 0444), 0);
  EXPECT_THAT(given_token(path_).status().why, HasSubstr("chmod 400 or 440"));
}

TEST_F(TokenFile, a_given_token_is_long_and_one_word) {
  for (const std::string text : {"", "short", "0123456789 0123456789 0123456789 01234"}) {
    const std::string file = base_ + "/given" + std::to_string(text.size());
    std::ofstream(file) << text << "\n";
    ASSERT_EQ(chmod(file.c_str(), 0400), 0);
    EXPECT_THAT(given_token(file).status().why, HasSubstr("32 to 256 characters")) << text;
  }
}

}  // namespace
}  // namespace rueda::status::metrics_port_test
