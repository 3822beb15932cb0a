// SPDX-License-Identifier: Apache-2.0
// Checks of the C++ unit tests. A program is one file of TEST(Name) { ... } bodies: it runs them
// all, or those whose names are given, and exits with 1 if a check failed. A failed check says
// where, and goes on.
#ifndef MEMC_TESTS_CHECK_H_
#define MEMC_TESTS_CHECK_H_

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace memc::tests {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test> all;
inline int failures = 0;

inline bool Add(const char* name, void (*body)()) {
  all.push_back({name, body});
  return true;
}

inline void Fail(const char* file, int line, const std::string& what) {
  constexpr int kShown = 20;
  if (++failures <= kShown) std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

template <typename A, typename B>
void CheckEqual(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream what;
  what << "expected " << text << ", got " << +a << " and " << +b;
  Fail(file, line, what.str());
}

// The exception's words must hold `part`.
template <typename Error, typename Body>
void CheckThrows(const Body& body, const char* part, const char* text, const char* file, int line) {
  try {
    body();
  } catch (const Error& error) {
    if (std::strstr(error.what(), part) == nullptr) {
      Fail(file, line,
           std::string(text) + " throws \"" + error.what() + "\", expected \"" + part + "\"");
    }
    return;
  }
  Fail(file, line, std::string(text) + " does not throw");
}

// Random numbers that are the same everywhere, which the standard's distributions are not.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Below(int64_t count) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(count));
  }
  int64_t Within(int64_t least, int64_t most) { return least + Below(most - least + 1); }
  bool Flip() { return Below(2) != 0; }

 private:
  std::mt19937 engine_;
};

}  // namespace memc::tests

#define TEST(name)                                                                 \
  static void name();                                                              \
  [[maybe_unused]] static const bool added_##name = memc::tests::Add(#name, name); \
  static void name()
#define CHECK(condition) \
  ((condition) ? void() : memc::tests::Fail(__FILE__, __LINE__, "expected " #condition))
#define CHECK_EQ(a, b) memc::tests::CheckEqual(a, b, #a " == " #b, __FILE__, __LINE__)
#define CHECK_THROWS(Error, expression, part)                                                \
  memc::tests::CheckThrows<Error>([&] { static_cast<void>(expression); }, part, #expression, \
                                  __FILE__, __LINE__)

int main(int argc, char** argv) {
  int ran = 0;
  for (const memc::tests::Test& test : memc::tests::all) {
    bool chosen = argc == 1;
    for (int i = 1; i < argc; ++i) chosen = chosen || std::strcmp(argv[i], test.name) == 0;
    if (!chosen) continue;
    ++ran;
    const int before = memc::tests::failures;
    try {
      test.body();
    } catch (const std::exception& error) {
      memc::tests::Fail(test.name, 0, std::string("throws: ") + error.what());
    }
    if (memc::tests::failures != before) std::fprintf(stderr, "%s: failed\n", test.name);
  }
  std::printf("%d tests, %d failed checks\n", ran, memc::tests::failures);
  return ran > 0 && memc::tests::failures == 0 ? 0 : 1;
}

#endif  // MEMC_TESTS_CHECK_H_
