# Writes OUTPUT, a C++ source with the text of every presets/*.toml, so that the binary needs no files beside it.
#   cmake -DPRESETS=<folder> -DOUTPUT=<file> -P embed_presets.cmake
file(GLOB presets ${PRESETS}/*.toml)
list(SORT presets)
set(rows "")
foreach(preset ${presets})
  get_filename_component(name ${preset} NAME_WLE)
  file(READ ${preset} text)
  string(APPEND rows "    {\"${name}\", R\"toml(${text})toml\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"trireme/train/presets.h\"

namespace trireme {

const std::vector<Preset>& AllPresets() {
  static const std::vector<Preset> presets = {
${rows}  };
  return presets;
}

}  // namespace trireme
")
