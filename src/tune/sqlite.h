// SQLite, with errors that say what to do. Everything of sqlite3.h stays in sqlite.cc.
//
// A file is used by several processes at once, and by other programs: it has a write-ahead log, whoever writes waits for others
// (kLongestWait), and a transaction that writes says so when it begins, because one that begins by reading cannot wait.
//
// Thread safety: none; a Database and its statements belong to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace trireme {

class Database;

// One SQL statement. Reset and bound anew for each use; its database keeps it for the next one with the same text.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // The values of ?1, ?2, ...; begins anew.
  template <class... Values>
  Statement& With(const Values&... values) {
    Reset();
    int index = 0;
    (Bind(++index, values), ...);
    return *this;
  }
  // The next row; false: there is none. Throws Error.
  bool Next();
  // For statements without rows.
  void Run() {
    while (Next()) {
    }
  }

  std::int64_t Int(int column) const;
  double Real(int column) const;
  std::string Text(int column) const;
  bool IsNull(int column) const;

 private:
  void Reset();
  void Bind(int index, std::int64_t value);
  void Bind(int index, int value) { Bind(index, static_cast<std::int64_t>(value)); }
  void Bind(int index, double value);
  void Bind(int index, std::string_view value);
  void Bind(int index, const std::string& value) { Bind(index, std::string_view(value)); }
  void Bind(int index, const char* value) { Bind(index, std::string_view(value)); }
  void Bind(int index, std::nullptr_t);

  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  std::vector<sqlite3_stmt*>& kept_;  // where it goes
};

class Database {
 public:
  // Opens the file, or makes it. Throws Error: no folder, no permission, not a database, damaged, locked.
  explicit Database(const std::filesystem::path& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Statements without values and rows, one after the other.
  void Run(const std::string& sql);
  // All of `body` or, when it throws, nothing. Waits for others who write.
  void Write(const std::function<void()>& body);
  std::int64_t LastId() const;
  // Rows that the last statement has changed.
  int Changes() const;

  const std::filesystem::path& path() const { return path_; }
  sqlite3* handle() { return handle_; }
  // Throws Error for a code of SQLite.
  [[noreturn]] void Refuse(int code) const;
  // Statements of this text that nobody uses.
  std::vector<sqlite3_stmt*>& Kept(std::string_view sql);

  static constexpr double kLongestWait = 60;  // seconds

 private:
  std::filesystem::path path_;
  sqlite3* handle_ = nullptr;
  std::map<std::string, std::vector<sqlite3_stmt*>, std::less<>> kept_;
};

}  // namespace trireme
