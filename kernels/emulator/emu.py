#!/usr/bin/env python3
"""emu.py FILE.cu [-I DIR]... -o OUT.cpp [--arch 900] [--ns NAME] [--table TABLE.py] [-D NAME=VALUE]...

Makes one C++ source of a CUDA unit and its headers, to be included by a test (README.md). All of it is in the namespace NAME
(default: the file's stem). Functions with inline asm are replaced by name from TABLE below; one that is not there is an error.
"""
import argparse, os, re, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
KERNELS = os.path.join(os.path.dirname(HERE), 'include')

# Name: the new body, $0, $1, ... being the parameters' names, $T0 the first template parameter's.
TABLE = {
    'half_value': 'return emu::half_value($0);',
    'nearest_half': 'return emu::nearest_half($0);',
    'halves_of': 'return emu::halves_of($0);',
    'dp4a': 'return emu::dp4a($0, $1, $2);',
    'dp4a_signed': 'return emu::dp4a($0, $1, $2);',
    'dp4a_unsigned': 'return emu::dp4a_us($0, $1, $2);',
    'dp4a_of_bytes': 'return emu::dp4a_uu($0, $1, $2);',
    'dp2a_unsigned': 'return emu::dp2a<false, true>($1, $2, emu::dp2a<false, false>($0, $2, $3));',
    'dp2a_signed': 'return emu::dp2a<true, true>($1, $2, emu::dp2a<true, false>($0, $2, $3));',
    'choose': 'return emu::prmt($0, $1, $2);',
    'copy16': 'emu::copy_async<16>($0, $1);',
    'copy8': 'emu::copy_async<8>($0, $1);',
    'copy4': 'emu::copy_async<4>($0, $1);',
    'copies_end': 'emu::copies_end();',
    'copies_wait': 'emu::copies_wait($T0);',
    'wait_for_predecessor': '',
    'let_successor_begin': '',
    'arrivals_begin': 'emu::arrivals_begin($0);',
    'arrivals_are_visible': '',
    'arrivals_expect': 'emu::arrivals_expect($0, $1);',
    'copy_stretch': 'emu::copy_stretch($0, $1, $2, $3);',
    'arrivals_wait': 'emu::arrivals_wait($0, $1);',
    'load_fresh': 'return *$0;',
    'count_ended': 'return atomicAdd($0, 1u);',
    # A unit of the last place too large, right, or one too small: what is made of it must not depend on that.
    'near_reciprocal': 'const u32 r = __float_as_uint(1.0f / $0); return __uint_as_float(r + (r * 2654435761u >> 16) % 3 - 1);',
    'load_fresh4': 'return *reinterpret_cast<const float4*>($0);',
    'fresh': 'return *$0;',
    'fresh_key': 'return *$0;',
    'workers_meet': 'emu::bar_sync(1, 512);',
    'group_meets': 'emu::bar_sync(1 + $0, $1 * WARP);',
    'keep_order': 'asm volatile("" ::: "memory");',
    'mma_s8_8816': 'emu::mma_s8_8816($0, $1, $2);',
    'mma_s8_16816': 'emu::mma_s8_16816($0, $1, $2, $3);',
    'mma_s8_16832': 'emu::mma_s8_16832($0, $1, $2, $3, $4, $5, $6);',
    'add_product_16': 'emu::add_product_16<$T0>($0, $1, $2, $3);',
    'add_product_32': 'emu::add_product_32<$T0>($0, $1.x, $1.y, $1.z, $1.w, $2, $3);',
    'product_16': '$0[0] = $0[1] = $0[2] = $0[3] = 0; emu::add_product_16<false>($0, $1, $2, $3);',
    'keep_as_is': 'asm volatile("" : "+r"($0));',
    'product_32': '$0[0] = $0[1] = $0[2] = $0[3] = 0; emu::add_product_32<false>($0, $1.x, $1.y, $1.z, $1.w, $2, $3);',
}

# The asm, word for word, that was read and compared with what replaces it; other asm is a warning.
KNOWN = {
    'add_product_16': {
        '"mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(c[0]), "+r"(c[1]) : "r"(a0), "r"(b)',
        '"mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(c[2]), "+r"(c[3]) : "r"(a1), "r"(b)',
        '"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(c[0]), "+r"(c[1]) : "r"(a0), "r"(b)',
        '"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(c[2]), "+r"(c[3]) : "r"(a1), "r"(b)',
    },
    'add_product_32': {
        '"mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1)',
        '"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1)',
    },
    'arrivals_begin': {
        '"mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory"',
    },
    'arrivals_expect': {
        '"mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory"',
    },
    'arrivals_wait': {
        '"{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(shared_address(barrier)), "r"(phase) : "memory"',
    },
    'choose': {
        '"prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector)',
    },
    'copies_end': {
        '"cp.async.commit_group;" ::: "memory"',
    },
    'copies_wait': {
        '"cp.async.wait_group %0;" ::"n"(N) : "memory"',
    },
    'copy16': {
        '"cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory"',
    },
    'copy4': {
        '"cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory"',
    },
    'copy_stretch': {
        '"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory"',
    },
    'dp2a_signed': {
        '"dp2a.hi.s32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a1), "r"(b)',
        '"dp2a.lo.s32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a0), "r"(b)',
    },
    'dp2a_unsigned': {
        '"dp2a.hi.s32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a1), "r"(b)',
        '"dp2a.lo.s32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a0), "r"(b)',
    },
    'dp4a': {
        '"dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b)',
    },
    'dp4a_unsigned': {
        '"dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b)',
    },
    'dp4a_of_bytes': {
        '"dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b)',
    },
    'fresh': {
        '"ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory"',
    },
    'fresh_key': {
        '"ld.global.cg.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory"',
    },
    'half_value': {
        '"cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits)',
    },
    'halves_of': {
        '"{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }" : "=f"(value.x), "=f"(value.y) : "r"(word)',
    },
    'count_ended': {
        '"atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(ended) : "memory"',
    },
    'load_fresh': {
        '"ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory"',
    },
    'load_fresh4': {
        '"ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory"',
    },
    'mma_s8_16816': {
        '"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a0), "r"(a1), "r"(b)',
        '"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(c[0]), "+r"(c[1]) : "r"(a0), "r"(b)',
        '"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(c[2]), "+r"(c[3]) : "r"(a1), "r"(b)',
    },
    'mma_s8_16832': {
        '"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1)',
    },
    'near_reciprocal': {
        '"rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x)',
    },
    'nearest_half': {
        '"cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x)',
    },
    'product_16': {
        '"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};" : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3]) : "r"(a0), "r"(a1), "r"(b), "r"(0)',
    },
    'keep_as_is': {
        '"" : "+r"(x)',
    },
    'product_32': {
        '"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};" : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3]) : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "r"(0)',
    },
    'workers_meet': {
        '"bar.sync 1, 512;" ::: "memory"',
    },
    'group_meets': {
        '"bar.sync %0, %1;" ::"r"(1 + group), "r"(warps * WARP) : "memory"',
    },
}

# asm statements that do nothing here, whatever function they are in (the text of the template).
HARMLESS = re.compile(r'^\s*(prefetch(u)?\b|griddepcontrol\b|fence\b|membar\b|cp\.async\.bulk\.prefetch|applypriority|discard|nanosleep)')

CONTROL = {'if', 'for', 'while', 'switch', 'catch', 'return', 'sizeof', 'alignas', 'decltype', '__attribute__', '__align__',
           '__launch_bounds__', 'constexpr', 'static_assert', 'noexcept'}


def fail(text):
    sys.exit('emu.py: ' + text)


def preprocess(path, includes, arch, defines):
    command = ['g++', '-E', '-x', 'c++', '-std=c++17', f'-D__CUDA_ARCH__={arch}', '-D__CUDACC__', '-D__CUDACC_RTC__', '-nostdinc']
    command += ['-D' + d for d in defines]
    command += ['-I' + i for i in includes] + [path]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        fail('g++ -E:\n' + done.stderr)
    lines = []
    for line in done.stdout.split('\n'):
        m = re.match(r'# (\d+) "([^"]*)"', line)
        if m:
            # As #line, without the flags that g++ would take for system headers.
            line = f'#line {m.group(1)} "{m.group(2)}"' if not m.group(2).startswith('<') else ''
        elif re.match(r'\s*#\s*pragma\s+(unroll|once|nv_)', line):
            line = ''
        lines.append(line)
    return '\n'.join(lines)


def tokens(text):
    """Blanks strings, characters and # lines, so that positions stay."""
    out = list(text)
    i, n = 0, len(text)
    start = True
    while i < n:
        c = text[i]
        if start and c == '#':
            while i < n and text[i] != '\n':
                out[i] = ' '
                i += 1
            continue
        if c == '\n':
            start = True
        elif not c.isspace():
            start = False
        if c == '"' or (c == "'" and not (i > 0 and text[i - 1].isalnum())):
            j = i + 1
            while text[j] != c:
                j += 2 if text[j] == '\\' else 1
            for k in range(i + 1, j):
                out[k] = '_' if text[k] != '\n' else '\n'
            i = j + 1
            continue
        i += 1
    return ''.join(out)


def matching(text, at, open_, close):
    depth = 0
    for i in range(at, len(text)):
        if text[i] == open_:
            depth += 1
        elif text[i] == close:
            depth -= 1
            if depth == 0:
                return i
    fail('no ' + close)


def split_commas(text):
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        if c in '([{<':
            depth += 1
        elif c in ')]}>':
            depth -= 1
        elif c == ',' and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    parts.append(text[last:])
    return [p.strip() for p in parts if p.strip()]


def parameter_name(p):
    m = re.search(r'\(\s*[&*]+\s*(\w+)\s*\)', p)
    if m:
        return m.group(1)
    p = re.sub(r'=.*', '', p, flags=re.S)
    p = re.sub(r'\[[^\]]*\]', '', p)
    names = re.findall(r'\w+', p)
    return names[-1] if names else ''


class Function:
    def __init__(self, name, header, header_at, body, end):
        self.name, self.header, self.header_at, self.body, self.end = name, header, header_at, body, end

    def parameters(self):
        at = [m.end() for m in re.finditer(r'\b' + re.escape(self.name) + r'\s*(?=\()', self.header)][-1]
        return [parameter_name(p) for p in split_commas(self.header[at + 1:matching(self.header, at, '(', ')')])]

    def templates(self):
        m = re.search(r'template\s*<', self.header)
        if not m:
            return []
        end = matching(self.header, m.end() - 1, '<', '>')
        return [parameter_name(p) for p in split_commas(self.header[m.end():end])]


def function_at(blank, position):
    """The outermost function body around a position: (name, where its header begins, where its body begins and ends)."""
    stack, header = [], 0
    # Positions of the braces around `position`, with their headers.
    last = 0
    for i in range(position):
        c = blank[i]
        if c == '{':
            stack.append((last, i))
            last = i + 1
        elif c == '}':
            stack.pop()
            last = i + 1
        elif c == ';' and not inside_parens(blank, last, i):
            last = i + 1
    for head, brace in stack:
        text = blank[head:brace]
        bare = re.sub(r'template\s*<[^{]*?>\s*(?=struct|class|union)', '', text)
        if re.match(r'\s*(namespace|struct|class|union|enum)\b', bare) or re.match(r'\s*extern\s*"[^"]*"\s*$', bare):
            continue
        names = [m.group(1) for m in re.finditer(r'([A-Za-z_]\w*)\s*\(', text) if m.group(1) not in CONTROL]
        if not names:
            continue
        end = matching(blank, brace, '{', '}')
        # The first name before a parenthesis that is none of an attribute is the function's.
        return Function(names[0], text, head, brace, end)
    return None


def inside_parens(blank, a, b):
    return blank.count('(', a, b) > blank.count(')', a, b)


def asm_statements(text, blank):
    """(start, end with semicolon, template) of each asm."""
    for m in re.finditer(r'\b(asm|__asm__)\b', blank):
        paren = blank.find('(', m.end())
        end = matching(blank, paren, '(', ')')
        semi = blank.find(';', end)
        strings = re.match(r'\s*((?:"(?:[^"\\]|\\.)*"\s*)*)', text[paren + 1:end]).group(1)
        template = ''.join(re.findall(r'"((?:[^"\\]|\\.)*)"', strings))
        yield m.start(), semi + 1, template, ' '.join(text[paren + 1:end].split())


def replace_asm(text, table, source):
    # Harmless statements first.
    blank = tokens(text)
    for start, end, template, _ in reversed(list(asm_statements(text, blank))):
        if HARMLESS.match(template):
            text = text[:start] + ';' + '\n' * text.count('\n', start, end) + text[end:]
    blank = tokens(text)
    functions = {}
    for start, end, template, whole in asm_statements(text, blank):
        if template == '':
            continue  # orders memory only; g++ knows it, too
        f = function_at(blank, start)
        if f is None:
            fail(f'asm outside of a function: {template}')
        functions.setdefault(f.body, (f, []))[1].append((template, whole))
    replaced = []
    missing = []
    for body in sorted(functions, reverse=True):
        f, templates = functions[body]
        if f.name not in table:
            missing.append(f'{f.name}: ' + ' | '.join(t for t, _ in templates))
            continue
        new = table[f.name]
        for _, whole in templates:
            if f.name in TABLE and new == TABLE[f.name] and whole not in KNOWN.get(f.name, ()):
                print(f'emu.py: warning: {f.name} has asm that nobody compared with what replaces it: {whole}', file=sys.stderr)
        names, types = f.parameters(), f.templates()
        try:
            new = re.sub(r'\$T(\d+)', lambda m: types[int(m.group(1))], new)
            new = re.sub(r'\$(\d+)', lambda m: names[int(m.group(1))], new)
        except IndexError:
            fail(f'{f.name} has other parameters than the table says: {names}, {types}')
        text = text[:f.body] + '{ ' + new + ' ' + '\n' * text.count('\n', f.body, f.end) + '}' + text[f.end + 1:]
        replaced.append(f.name)
    if missing:
        fail(f'{source}: functions with asm that the table does not have (give them with --table):\n  ' + '\n  '.join(missing))
    return text, replaced


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('file')
    p.add_argument('-I', action='append', default=[], dest='includes')
    p.add_argument('-o', required=True, dest='out')
    p.add_argument('--arch', default='900')
    p.add_argument('--ns')
    p.add_argument('--table', action='append', default=[])
    p.add_argument('-D', action='append', default=[], dest='defines')
    p.add_argument('-v', action='store_true')
    p.add_argument('--device', action='store_true', help='for the emulated device: its own header, and a list of entries')
    a = p.parse_args()
    arch = int(re.sub(r'\D', '', a.arch))
    arch = arch * 10 if arch < 200 else arch
    table = dict(TABLE)
    for path in a.table:
        scope = {}
        exec(open(path).read(), scope)
        table.update(scope['TABLE'])
    text = preprocess(os.path.abspath(a.file), a.includes + [KERNELS], arch, a.defines)
    text, replaced = replace_asm(text, table, a.file)
    text = re.sub(r'extern\s+__shared__\s+((?:__align__|alignas|__attribute__)\s*\(+[^)]*\)+\s*)?([\w:\s]+?)\s+(\w+)\s*\[\s*\]\s*;',
                  r'static \2* const \3 = reinterpret_cast<\2*>(emu::shared_area);', text)
    text = re.sub(r'extern\s+__shared__\s+([\w:\s]+?)\s+(__align__\s*\([^)]*\)\s*)(\w+)\s*\[\s*\]\s*;',
                  r'static \1* const \3 = reinterpret_cast<\1*>(emu::shared_area);', text)
    blank = tokens(text)
    if re.search(r'extern\s+__shared__', blank):
        fail('an extern __shared__ declaration of another form')
    for m in reversed(list(re.finditer(r'__shared__\s+([^;{]*);', blank))):
        names = [parameter_name(p) for p in split_commas(m.group(1))]
        known = ''.join(f' static const emu::Shared emu_shared_{n}((void*)&{n}, sizeof {n});' for n in names)
        text = text[:m.start()] + 'static ' + text[m.start(1):m.end()] + known + text[m.end():]
    blank = tokens(text)
    if '__shared__' in blank:
        fail('a __shared__ variable of a form that emu.py does not know')
    # Two versions of a unit may be in one program.
    for m in reversed(list(re.finditer(r'extern\s+"(_)"\s+(?=(?:[\w\s]|\([^)]*\))*__global__)', blank))):
        text = text[:m.start()] + ' ' * (m.end() - m.start()) + text[m.end():]
    blank = tokens(text)
    bounds = []
    for m in re.finditer(r'__global__\s+', blank):
        at, threads, before = m.end(), None, blank[max(blank.rfind(';', 0, m.start()), blank.rfind('}', 0, m.start()), 0):m.start()]
        while word := re.match(r'\s*(void\b|static\b|__launch_bounds__\s*\()', blank[at:]):
            at += word.end()
            if word.group(1).startswith('__launch'):
                end = matching(blank, at - 1, '(', ')')
                threads, at = split_commas(blank[at:end])[0], end + 1
        name = re.match(r'\s*(\w+)\s*\(', blank[at:])
        if name and 'template' not in before:
            bounds.append((name.group(1), threads))
    stem = a.ns or re.sub(r'\W', '_', os.path.splitext(os.path.basename(a.file))[0])
    with open(a.out, 'w') as f:
        f.write(f'// {os.path.abspath(a.file)} for __CUDA_ARCH__ {arch}, by emu.py. Replaced: {", ".join(sorted(replaced))}\n')
        f.write('#include "unit.h"\n' if a.device else f'#include "{HERE}/emu.h"\n')
        f.write('#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored "-Wunknown-pragmas"\n'
                '#pragma GCC diagnostic ignored "-Wunused-function"\n#pragma GCC diagnostic ignored "-Wunused-variable"\n'
                '#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"\n#pragma GCC diagnostic ignored "-Wuninitialized"\n'
                '#pragma GCC diagnostic ignored "-Wattributes"\n')
        f.write(f'namespace {stem} {{\n')
        f.write(text)
        if a.device:
            f.write(f'\nstatic const unsigned emu_arch = emu::unit_arch = {arch};')
        for name, threads in bounds:
            if a.device:
                f.write(f'\nstatic const emu::Entry emu_entry_{name}("{name}", &{name}, {threads or 1024});')
            elif threads:
                f.write(f'\nstatic const emu::Bound emu_bound_{name}((const void*)&{name}, {threads});')
        f.write(f'\n}}  // namespace {stem}\n#pragma GCC diagnostic pop\n')
    if a.v:
        print('replaced:', ', '.join(replaced))


main()
