#include "rueda/status/scrape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace rueda::status::scrape_test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kToken = "0123456789abcdef";

std::string request(const std::string& line, const std::string& fields) {
  return line + "\r\nHost: 127.0.0.1:9400\r\n" + fields + "\r\n";
}
int verdict(const std::string& line, const std::string& fields) {
  return verdict_on(request(line, fields), kToken);
}
const std::string kShown = "Authorization: Bearer " + kToken + "\r\n";

TEST(Scrape, who_shows_the_token_gets_the_metrics) {
  EXPECT_EQ(verdict("GET /metrics HTTP/1.1", kShown), 200);
  EXPECT_EQ(verdict("GET /metrics HTTP/1.0", "authorization:bearer   " + kToken + " \r\n"), 200);
  EXPECT_EQ(verdict("GET /metrics?collect=all HTTP/1.1", "Accept: text/plain\r\n" + kShown), 200);
}

TEST(Scrape, who_does_not_show_it_hears_nothing_else_than_that) {
  for (const std::string& fields :
       {std::string(), std::string("Authorization: Bearer \r\n"), std::string("Authorization: Bearer\r\n"),
        "Authorization: Bearer " + kToken + "0\r\n", "Authorization: Bearer 1" + kToken.substr(1) + "\r\n",
        "Authorization: Basic " + kToken + "\r\n", "Authorization: " + kToken + "\r\n",
        "X-Authorization: Bearer " + kToken + "\r\n"})
    for (const char* line : {"GET /metrics HTTP/1.1", "GET / HTTP/1.1", "POST /metrics HTTP/1.1"})
      EXPECT_EQ(verdict(line, fields), 401) << line << " " << fields;
  EXPECT_EQ(verdict_on(request("GET /metrics HTTP/1.1", "Authorization: Bearer \r\n"), ""), 401);
}

TEST(Scrape, only_metrics_can_be_read_and_nothing_be_written) {
  for (const char* target : {"/", "/metric", "/metrics/", "/metricsx", "*", "http://127.0.0.1/metrics"})
    EXPECT_EQ(verdict("GET " + std::string(target) + " HTTP/1.1", kShown), 404) << target;
  for (const char* method : {"POST", "HEAD", "PUT", "DELETE", "OPTIONS", "get"})
    EXPECT_EQ(verdict(method + std::string(" /metrics HTTP/1.1"), kShown), 405) << method;
}

TEST(Scrape, what_is_not_a_request_is_refused) {
  for (const char* line :
       {"", "GET", "GET /metrics", "GET  HTTP/1.1", " /metrics HTTP/1.1", "GET /metrics HTTP/2.0",
        "GET /metrics HTTP/1.1 ", "GET /metrics  HTTP/1.1", "\x16\x03\x01\x02"})
    EXPECT_EQ(verdict(line, kShown), 400) << line;
  EXPECT_EQ(verdict("GET /metrics HTTP/1.1", "no colon\r\n" + kShown), 400);
  EXPECT_EQ(verdict("GET /metrics HTTP/1.1", ": empty\r\n" + kShown), 400);
  EXPECT_EQ(verdict("GET /metrics HTTP/1.1", kShown + kShown), 400);
}

TEST(Scrape, a_token_after_the_head_does_not_count) {
  EXPECT_EQ(verdict_on("GET /metrics HTTP/1.1\r\n\r\n" + kShown + "\r\n", kToken), 401);
}

TEST(Scrape, a_response_says_how_long_it_is_and_that_it_is_the_last) {
  EXPECT_THAT(http_response(200, "a 1\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("\r\nContent-Length: 4\r\n"),
                    HasSubstr("\r\nConnection: close\r\n"), HasSubstr("text/plain; version=0.0.4"),
                    EndsWith("\r\n\r\na 1\n")));
  EXPECT_THAT(http_response(401), HasSubstr("\r\nWWW-Authenticate: Bearer\r\n"));
  EXPECT_THAT(http_response(405), HasSubstr("\r\nAllow: GET\r\n"));
  for (const int status : {400, 401, 404, 405, 431})
    EXPECT_THAT(http_response(status, "not shown"), testing::Not(HasSubstr("not shown")));
}

TEST(Scrape, a_head_is_whole_with_its_empty_line) {
  const std::string head = request("GET /metrics HTTP/1.1", kShown);
  EXPECT_TRUE(has_whole_head(head));
  for (size_t size = 0; size < head.size(); ++size) EXPECT_FALSE(has_whole_head(head.substr(0, size)));
}

RC_GTEST_PROP(Scrape, no_bytes_open_the_metrics_without_the_token, (const std::string& bytes)) {
  RC_PRE(bytes.find(kToken) == std::string::npos);
  for (const std::string& head :
       {bytes, request("GET /metrics HTTP/1.1", bytes),
        request("GET /metrics HTTP/1.1", "Authorization: Bearer " + bytes + "\r\n")})
    RC_ASSERT(verdict_on(head, kToken) == 400 || verdict_on(head, kToken) == 401);
}

}  // namespace
}  // namespace rueda::status::scrape_test
