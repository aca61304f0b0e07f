#include "trireme/tune/sqlite.h"

#include <sqlite3.h>

#include <chrono>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/system.h"

namespace trireme {

Statement::Statement(Database& database, std::string_view sql)
    : database_(database), kept_(database.Kept(sql)) {
  if (!kept_.empty()) {
    statement_ = kept_.back();
    kept_.pop_back();
    return;
  }
  const int code =
      sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()), &statement_, nullptr);
  if (code != SQLITE_OK) database.Refuse(code);
}

Statement::~Statement() {
  Reset();
  kept_.push_back(statement_);
}

void Statement::Reset() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Statement::Bind(int index, std::int64_t value) { sqlite3_bind_int64(statement_, index, value); }
void Statement::Bind(int index, double value) { sqlite3_bind_double(statement_, index, value); }
void Statement::Bind(int index, std::nullptr_t) { sqlite3_bind_null(statement_, index); }
void Statement::Bind(int index, std::string_view value) {
  sqlite3_bind_text(statement_, index, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT);
}

bool Statement::Next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    sqlite3_reset(statement_);  // gives back what it holds of the file
    return false;
  }
  sqlite3_reset(statement_);
  database_.Refuse(code);
}

std::int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_, column); }
double Statement::Real(int column) const { return sqlite3_column_double(statement_, column); }
bool Statement::IsNull(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
std::string Statement::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return text == nullptr ? std::string() : std::string(text, sqlite3_column_bytes(statement_, column));
}

Database::Database(const std::filesystem::path& path) : path_(path) {
  try {
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    const int code = sqlite3_open_v2(path.c_str(), &handle_, flags, nullptr);
    if (code != SQLITE_OK) Refuse(code);
    sqlite3_extended_result_codes(handle_, 0);
    sqlite3_busy_timeout(handle_, static_cast<int>(1000 * kLongestWait));
    // Somebody who is just leaving the file can refuse the change of its journal at once, without waiting.
    for (const double until = MonotonicSeconds() + kLongestWait;;) {
      const int changed = sqlite3_exec(handle_, "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
      if (changed == SQLITE_OK) break;
      if (changed != SQLITE_BUSY || MonotonicSeconds() > until) Refuse(changed);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    // What a process has written stays when it is killed; a machine that loses power may lose the last trials.
    Run("PRAGMA synchronous = NORMAL");
    Run("PRAGMA foreign_keys = ON");
  } catch (...) {
    sqlite3_close_v2(handle_);
    throw;
  }
}

Database::~Database() {
  for (const auto& [sql, statements] : kept_) {
    for (sqlite3_stmt* const statement : statements) sqlite3_finalize(statement);
  }
  sqlite3_close_v2(handle_);
}

std::vector<sqlite3_stmt*>& Database::Kept(std::string_view sql) {
  const auto found = kept_.find(sql);
  return found != kept_.end() ? found->second : kept_[std::string(sql)];
}

void Database::Run(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) Refuse(code);
}

void Database::Write(const std::function<void()>& body) {
  Statement(*this, "BEGIN IMMEDIATE").Run();
  try {
    body();
    Statement(*this, "COMMIT").Run();
  } catch (...) {
    if (sqlite3_get_autocommit(handle_) == 0) sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
}

std::int64_t Database::LastId() const { return sqlite3_last_insert_rowid(handle_); }
int Database::Changes() const { return sqlite3_changes(handle_); }

void Database::Refuse(int code) const {
  const std::string file = path_.string();
  switch (code & 0xff) {
    case SQLITE_NOTADB:
      Fail("{} is no study: it is some other file. Name a new one with --study", file);
    case SQLITE_CORRUPT:
      Fail("{} is damaged ({}): name a new one with --study, or bring back a copy", file,
           sqlite3_errmsg(handle_));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      Fail("{} was locked by another program for {:.0f} seconds: end that, or name another file", file,
           kLongestWait);
    case SQLITE_FULL:
      Fail(
          "cannot write {}: the disk is full. The study is as it was; make room and give the same command "
          "again",
          file);
    case SQLITE_CANTOPEN:
      Fail("cannot open {}: is there such a folder, and may you write there?", file);
    case SQLITE_READONLY:
      Fail("cannot write {}: it is read-only", file);
    case SQLITE_PERM:
    case SQLITE_AUTH:
      Fail("cannot write {}: you may not", file);
    case SQLITE_IOERR:
      Fail("cannot read or write {}: {}. The study is as it was before", file, sqlite3_errmsg(handle_));
    default:
      Fail("{} cannot be used as a study: {}", file,
           handle_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle_));
  }
}

}  // namespace trireme
