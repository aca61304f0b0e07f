# Writes OUTPUT, a C++ source with the text of env_plugin.h, for who has only the program.
#   cmake -DHEADER=<file> -DOUTPUT=<file> -P embed_plugin_header.cmake
file(READ ${HEADER} text)
file(WRITE ${OUTPUT} "#include \"trireme/cli/plugin_header.h\"

namespace trireme {

const char* PluginHeader() {
  return R\"header(${text})header\";
}

}  // namespace trireme
")
