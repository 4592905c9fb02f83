#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "rueda/base/handshake.h"

namespace rueda::base_secret_test {
namespace {

class SecretFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "rueda-secret-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/secret";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void write(const std::string& text, mode_t mode) const {
    std::ofstream(path_, std::ios::binary) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }

  std::string directory_, path_;
};

TEST_F(SecretFile, what_was_written_is_read_back_and_only_its_owner_may_read_it) {
  const Secret secret = make_secret().value();
  EXPECT_EQ(secret.key.size(), 32u);
  ASSERT_TRUE(write_secret_file(path_, secret).is_ok());
  EXPECT_EQ(read_secret_file(path_).value().key, secret.key);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(SecretFile, writing_again_replaces_it_whole_and_leaves_no_draft) {
  write("an old secret of some length", 0644);
  const Secret secret = make_secret().value();
  ASSERT_TRUE(write_secret_file(path_, secret).is_ok());
  EXPECT_EQ(read_secret_file(path_).value().key, secret.key);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(SecretFile, two_secrets_differ) { EXPECT_NE(make_secret().value().key, make_secret().value().key); }

TEST_F(SecretFile, one_that_others_may_read_is_refused_with_the_remedy) {
  for (const mode_t mode : {0640, 0604, 0620, 0666}) {
    write("sixteen bytes at least", mode);
    const Result<Secret> read = read_secret_file(path_);
    ASSERT_FALSE(read.is_ok());
    EXPECT_EQ(read.status().code, Code::kPermissionDenied);
    EXPECT_NE(read.status().why.find("chmod 600"), std::string::npos);
  }
}

TEST_F(SecretFile, one_that_root_lets_a_group_read_is_taken) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a file of root";
  write("sixteen bytes at least", 0440);
  EXPECT_TRUE(read_secret_file(path_).is_ok());
  for (const mode_t mode : {0460, 0444, 0441, 0640}) {
    write("sixteen bytes at least", mode);
    EXPECT_EQ(read_secret_file(path_).status().code, Code::kPermissionDenied) << mode;
  }
  // A process of that group, as in a pod with an fsGroup.
  write("sixteen bytes at least", 0440);
  ASSERT_EQ(chown(path_.c_str(), 0, 12345), 0);
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  const pid_t child = fork();
  if (child == 0) {
    const gid_t group = 12345;
    const bool is_member = setgroups(1, &group) == 0 && setgid(1000) == 0 && setuid(1000) == 0;
    _exit(is_member && read_secret_file(path_).is_ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(chown(path_.c_str(), 12345, 0), 0);
  EXPECT_EQ(read_secret_file(path_).status().code, Code::kPermissionDenied) << "of another user";
}

TEST_F(SecretFile, hex_is_decoded_and_anything_else_is_taken_as_it_is) {
  write("000102030405060708090A0b0c0d0e0f\n", 0600);
  const Secret hex = read_secret_file(path_).value();
  ASSERT_EQ(hex.key.size(), 16u);
  EXPECT_EQ(hex.key[10], std::byte{0x0a});
  write(std::string("\0raw bytes, not hex\n", 20), 0600);
  EXPECT_EQ(read_secret_file(path_).value().key.size(), 20u);
}

TEST_F(SecretFile, one_too_short_too_long_missing_or_irregular_is_refused) {
  write("short", 0600);
  EXPECT_EQ(read_secret_file(path_).status().code, Code::kInvalidArgument);
  write(std::string(5000, 'x'), 0600);
  EXPECT_EQ(read_secret_file(path_).status().code, Code::kInvalidArgument);
  EXPECT_EQ(read_secret_file(path_ + "-none").status().code, Code::kUnavailable);
  const std::string fifo = directory_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(read_secret_file(fifo).status().code, Code::kInvalidArgument);
  EXPECT_FALSE(write_secret_file(path_, Secret{Bytes(3)}).is_ok());
  EXPECT_EQ(write_secret_file(directory_ + "/no/such/place", make_secret().value()).code, Code::kUnavailable);
}

}  // namespace
}  // namespace rueda::base_secret_test
