#include "launch/log_collector.h"

#include <gmock/gmock.h>

namespace rueda::launch::log_collector_test {
namespace {

TEST(LogUrl, is_a_scheme_before_two_slashes) {
  for (const char* url : {"s3://bucket/run", "memory://run", "local:///tmp/run"})
    EXPECT_TRUE(is_log_url(url));
  for (const char* path : {"logs", "/tmp/logs", "file:///tmp/logs", "a/b://c", "://x", ""})
    EXPECT_FALSE(is_log_url(path)) << path;
}

TEST(LogUrl, of_the_memory_of_one_process_is_refused) {
  EXPECT_EQ(
      check_log_url("memory://run").why,
      "--log-dir memory://run is a place in the memory of one process, where nobody could read the logs; "
      "name a folder, or a URL of an object store");
  for (const char* url : {"s3://bucket/memory://", "local:///tmp/run", "memoryfs://x"})
    EXPECT_TRUE(check_log_url(url).is_ok()) << url;
}

TEST(LogUrl, without_a_folder_is_refused) {
  EXPECT_EQ(check_log_url("file://").why, "--log-dir file:// names no folder; write file:///folder");
  EXPECT_EQ(check_log_url("file://a/logs").why,
            "--log-dir file://a/logs names a folder of the host a; write file:///folder");
  EXPECT_TRUE(check_log_url("file:///logs").is_ok());
}

TEST(LogUrl, of_a_file_is_its_path) {
  EXPECT_EQ(local_log_dir("file:///tmp/logs"), "/tmp/logs");
  EXPECT_EQ(local_log_dir("s3://bucket"), "s3://bucket");
  EXPECT_EQ(local_log_dir("logs"), "logs");
}

}  // namespace
}  // namespace rueda::launch::log_collector_test
