# cmake -DINPUT=FILE -DOUTPUT=FILE.c -DNAME=run_page -DHEADER=run/report/page.h -P embed.cmake: a file as bytes of C.
file(READ ${INPUT} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\nconst unsigned char ${NAME}_bytes[] = {\n${bytes}\n};\nconst size_t ${NAME}_size = ${size};\n")
