// Secrets, their files, and the keyed hash. OpenSSL is linked statically and reads no configuration file.
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "rueda/base/handshake.h"
#include "rueda/base/unique_fd.h"

namespace rueda {
namespace {

constexpr size_t kSecretBytes = 32;
// A shorter key could be found by trying all keys on a recorded handshake.
constexpr size_t kMinSecretBytes = 16;
constexpr size_t kMaxSecretFileBytes = 4096;

Status file_fault(std::string_view what, const std::string& path, int error) {
  return {Code::kUnavailable,
          "cannot " + std::string(what) + " the secret file " + path + ": " + std::strerror(error) + "."};
}

Status fill_random(std::span<std::byte> out) {
  size_t filled = 0;
  while (filled < out.size()) {
    const ssize_t got = getrandom(out.data() + filled, out.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return {Code::kUnavailable,
              "the kernel gave no random bytes: " + std::string(std::strerror(errno)) + "."};
    filled += static_cast<size_t>(got);
  }
  return Status::ok();
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The key in a text of hex digits, which may end in white space. Empty for any other text.
std::optional<Bytes> parse_hex(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.remove_suffix(1);
  if (text.size() % 2 != 0 || text.size() < 2 * kMinSecretBytes) return std::nullopt;
  Bytes key;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_digit(text[i]);
    const int low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return key;
}

// A file of root may be readable for a group, as the Secrets are that Kubernetes mounts into pods with an
// fsGroup; only root can have given it to that group. Nobody may write it, and others may not read it.
bool is_private(const struct stat& info) {
  const bool is_granted_by_root = info.st_uid == 0 && (info.st_mode & 0777) == 0440;
  return (info.st_mode & 077) == 0 || is_granted_by_root;
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += kDigits[std::to_integer<size_t>(b) >> 4];
    text += kDigits[std::to_integer<size_t>(b) & 15];
  }
  return text;
}

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return {Code::kUnavailable, std::strerror(errno)};
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  return Status::ok();
}

// A rename is durable only after its directory has been synced.
void sync_directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.is_open()) fsync(fd.get());
}

}  // namespace

Result<Secret> make_secret() {
  Secret secret;
  secret.key.resize(kSecretBytes);
  if (Status status = fill_random(secret.key); !status.is_ok()) return status;
  return secret;
}

Result<Secret> read_secret_file(const std::string& path) {
  // O_NONBLOCK, so that a FIFO in its place cannot block the start of a job.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) return file_fault("open", path, errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return file_fault("examine", path, errno);
  if (!S_ISREG(info.st_mode))
    return Status(Code::kInvalidArgument, "the secret file " + path + " is not a regular file.");
  if (!is_private(info))
    return Status(Code::kPermissionDenied,
                  "the secret file " + path + " can be accessed by other users; run chmod 600 on it.");
  if (info.st_uid != geteuid() && info.st_uid != 0)
    return Status(Code::kPermissionDenied, "the secret file " + path + " belongs to another user.");

  std::string text(kMaxSecretFileBytes + 1, '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_fault("read", path, errno);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  text.resize(filled);
  if (filled < kMinSecretBytes || filled > kMaxSecretFileBytes)
    return Status(Code::kInvalidArgument, "the secret file " + path + " holds " + std::to_string(filled) +
                                              " bytes; a secret has between 16 and 4096.");
  if (std::optional<Bytes> key = parse_hex(text)) return Secret{*std::move(key)};
  const std::span<const std::byte> raw = std::as_bytes(std::span(text));
  return Secret{Bytes(raw.begin(), raw.end())};
}

Status write_secret_file(const std::string& path, const Secret& secret) {
  if (secret.key.size() < kMinSecretBytes)
    return {Code::kInvalidArgument,
            "a secret has at least 16 bytes; this one has " + std::to_string(secret.key.size()) + "."};
  std::array<std::byte, 8> nonce{};
  if (Status status = fill_random(nonce); !status.is_ok()) return status;
  const std::string draft = path + ".draft-" + to_hex(nonce);
  UniqueFd fd(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.is_open()) return file_fault("create", draft, errno);

  Status status;
  if (fchmod(fd.get(), 0600) != 0) status = file_fault("protect", draft, errno);
  if (status.is_ok()) {
    if (Status wrote = write_all(fd.get(), to_hex(secret.key) + "\n"); !wrote.is_ok())
      status = Status(Code::kUnavailable, "cannot write the secret file " + draft + ": " + wrote.why + ".");
  }
  if (status.is_ok() && fsync(fd.get()) != 0) status = file_fault("sync", draft, errno);
  if (status.is_ok() && rename(draft.c_str(), path.c_str()) != 0)
    status = file_fault("put in place", path, errno);
  if (!status.is_ok())
    unlink(draft.c_str());
  else
    sync_directory_of(path);
  return status;
}

bool is_same_secret(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  // Called once, before the first use, so that the openssl.cnf of the host is not read and no exit handler
  // remains after dlclose.
  static const int initialised =
      OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
  RUEDA_CHECK(initialised == 1, "OpenSSL could not be initialised");
  std::array<std::byte, 32> digest{};
  unsigned int size = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                   reinterpret_cast<unsigned char*>(digest.data()), &size);
  RUEDA_CHECK(made != nullptr && size == digest.size(), "HMAC-SHA256 failed");
  return digest;
}

}  // namespace rueda
