#include "server/shard.h"

#include <utility>

#include "base/error.h"
#include "server/shard_audit.h"
#include "server/shard_files.h"
#include "server/shard_log.h"
#include "server/shard_state.h"

namespace trireme {
namespace {

constexpr const char* kUpdateNote = "update";
constexpr const char* kAuditBytes = "audit/bytes";

}  // namespace

class Shard::Impl {
 public:
  Impl(const ShardStorage& storage, ShardState&& state) : storage_(storage), state_(std::move(state)) {}

  void Create() {
    if (!storage_.audit.empty()) audit_ = std::make_unique<ShardAudit>(storage_.audit);
    if (!storage_.folder.empty()) files_ = ShardFiles::Create(storage_, Saved());
  }

  static std::unique_ptr<Impl> Recover(const ShardStorage& storage) {
    if (storage.folder.empty()) return nullptr;
    std::unique_ptr<ShardFiles> files = ShardFiles::Open(storage);
    if (files == nullptr) return nullptr;
    std::optional<std::uint64_t> audit_bytes;
    std::unique_ptr<Impl> shard;
    {
      const StateReader saved = files->ReadState();
      if (saved.Has(kAuditBytes)) audit_bytes = saved.GetValue<std::uint64_t>(kAuditBytes);
      shard = std::make_unique<Impl>(storage, ShardState(saved));
    }
    shard->files_ = std::move(files);
    shard->Replay(audit_bytes);
    return shard;
  }

  void Apply(const ShardUpdate& update, std::span<const float> gradient, const std::string& note) {
    CHECK(gradient.size() == state_.params().size());
    CHECK(update.sequence > state_.LastSequence(update.worker));
    Commit({.kind = LogRecord::Kind::kUpdate,
            .version = state_.version() + 1,
            .update = update,
            .gradient = gradient,
            .name = {},
            .text = note});
  }

  void Note(const std::string& name, const std::string& value) {
    Commit({.kind = LogRecord::Kind::kNote,
            .version = state_.version(),
            .update = {},
            .gradient = {},
            .name = name,
            .text = value});
  }

  const ShardState& state() const { return state_; }

 private:
  StateWriter Saved() const {
    StateWriter state;
    state_.Save(state);
    if (audit_ != nullptr) state.PutValue<std::uint64_t>(kAuditBytes, audit_->bytes());
    return state;
  }

  // The log decides: what is in it has happened, whether or not the process lives to make it in memory.
  void Commit(LogRecord record) {
    if (files_ != nullptr && files_->WantsSnapshot(ShardLog::SizeOf(record))) files_->BeginSnapshot(Saved());
    const bool audited = audit_ != nullptr && record.kind == LogRecord::Kind::kUpdate;
    if (audited) audit_->Add(record.version, record.update);
    try {
      if (files_ != nullptr) files_->Append(record);
    } catch (const Error&) {
      if (audited) audit_->TakeBack();
      throw;
    }
    Make(record);
  }

  void Make(const LogRecord& record) noexcept {
    if (record.kind == LogRecord::Kind::kUpdate) {
      state_.Apply(record.update, record.gradient);
      if (!record.text.empty()) state_.SetNote(kUpdateNote, record.text);
    } else {
      state_.SetNote(record.name, record.text);
    }
  }

  bool Fits(const LogRecord& record) const {
    switch (record.kind) {
      case LogRecord::Kind::kUpdate:
        return record.version == state_.version() + 1 && record.gradient.size() == state_.params().size() &&
               record.update.sequence > state_.LastSequence(record.update.worker);
      case LogRecord::Kind::kNote:
        return record.version == state_.version();
    }
    return false;
  }

  // `audit_bytes`: length of the audit at the snapshot. Where there was none, or its file is gone, a new one
  // begins at the recovered version, and a snapshot remembers that.
  void Replay(std::optional<std::uint64_t> audit_bytes) {
    const bool audited = !storage_.audit.empty();
    const bool goes_on =
        audited && audit_bytes.has_value() && (*audit_bytes == 0 || ShardAudit::Exists(storage_.audit));
    if (goes_on) audit_ = std::make_unique<ShardAudit>(storage_.audit, *audit_bytes, state_.version());
    files_->Replay([&](const LogRecord& record) {
      if (!Fits(record)) {
        Fail(
            "the log in {} does not fit its snapshot at change {}: put back a copy of the whole folder, or "
            "remove "
            "it to begin the shard anew",
            storage_.folder.string(), record.number);
      }
      if (goes_on && record.kind == LogRecord::Kind::kUpdate) audit_->Add(record.version, record.update);
      Make(record);
    });
    if (!audited || goes_on) return;
    audit_ = std::make_unique<ShardAudit>(storage_.audit);
    files_->BeginSnapshot(Saved());
    files_->FinishSnapshot();
  }

  ShardStorage storage_;
  ShardState state_;
  std::unique_ptr<ShardAudit> audit_;
  std::unique_ptr<ShardFiles> files_;
};

Shard::Shard(const ShardSetup& setup, const ShardStorage& storage, std::span<const float> params,
             std::span<const float> moments, std::uint64_t updates, std::int64_t steps)
    : impl_(std::make_unique<Impl>(storage, ShardState(setup, params, moments, updates, steps))) {
  impl_->Create();
}

Shard::Shard(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<Shard> Shard::Recover(const ShardStorage& storage) {
  std::unique_ptr<Impl> impl = Impl::Recover(storage);
  return impl == nullptr ? nullptr : std::unique_ptr<Shard>(new Shard(std::move(impl)));
}

Shard::~Shard() = default;

const ShardSetup& Shard::setup() const { return impl_->state().setup(); }
std::span<const float> Shard::params() const { return impl_->state().params(); }
std::span<const float> Shard::moments(std::size_t m) const { return impl_->state().moments(m); }
std::size_t Shard::moment_count() const { return impl_->state().moment_count(); }
std::uint64_t Shard::version() const { return impl_->state().version(); }
std::int64_t Shard::steps() const { return impl_->state().steps(); }
std::uint64_t Shard::LastSequence(std::uint64_t worker) const { return impl_->state().LastSequence(worker); }
void Shard::Apply(const ShardUpdate& update, std::span<const float> gradient, const std::string& note) {
  impl_->Apply(update, gradient, note);
}
void Shard::Note(const std::string& name, const std::string& value) { impl_->Note(name, value); }
const std::string& Shard::NoteOf(const std::string& name) const { return impl_->state().NoteOf(name); }

}  // namespace trireme
