TABLE = {
'add_product_16': '''const u32 lane = threadIdx.x % WARP, row = lane & ~3u, column = lane % 4 * 8;
    auto dot = [](u32 w, u32 x, i32 sum) { return UNSIGNED ? dp4a_unsigned(w, x, sum) : dp4a(w, x, sum); };
    for (u32 i = 0; i < 4; i++) {
        const u32 top = __shfl_sync(ALL, $1, row + i), low = __shfl_sync(ALL, $2, row + i);
        const u32 left = __shfl_sync(ALL, $3, column + i), right = __shfl_sync(ALL, $3, column + 4 + i);
        $0[0] = dot(top, left, $0[0]), $0[1] = dot(top, right, $0[1]);
        $0[2] = dot(low, left, $0[2]), $0[3] = dot(low, right, $0[3]);
    }''',
'add_product_32': 'add_product_16<UNSIGNED>($0, $1.x, $1.y, $2); add_product_16<UNSIGNED>($0, $1.z, $1.w, $3);',
'product_32': 'for (auto& x : $0) x = 0; add_product_16<false>($0, $1.x, $1.y, $2); add_product_16<false>($0, $1.z, $1.w, $3);',
'keep_as_is': '',
'product_16': 'for (auto& x : $0) x = 0; add_product_16<false>($0, $1, $2, $3);'}
