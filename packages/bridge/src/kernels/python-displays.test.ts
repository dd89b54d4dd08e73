import { MAX_RESULTS_BYTES, type MimeBundle, TABLE_TYPE } from '@ash-ai/shared'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { KernelProcess } from './testing/kernel-process.ts'

let kernel: KernelProcess
beforeAll(() => {
  kernel = new KernelProcess('python')
})
afterAll(() => kernel.stop())

async function bundlesOf(code: string): Promise<MimeBundle[]> {
  const { displays, done } = await kernel.run(code)
  expect(done).toEqual({})
  return displays.map(({ data }) => data)
}

const shown = (method: string, value: string) =>
  `class C:\n  def __repr__(self): return "C"\n  def ${method}(self, **k): return ${value}\ndisplay(C())`

test.each([
  ['_repr_html_', '"<b>"', { 'text/html': '<b>' }],
  ['_repr_markdown_', '"*a*"', { 'text/markdown': '*a*' }],
  ['_repr_svg_', '"<svg/>"', { 'image/svg+xml': '<svg/>' }],
  ['_repr_png_', 'b"png"', { 'image/png': 'cG5n' }],
  ['_repr_png_', '(b"png", {"width": 1})', { 'image/png': 'cG5n' }],
  ['_repr_jpeg_', 'b"jpg"', { 'image/jpeg': 'anBn' }],
  ['_repr_json_', '{"a": 1}', { 'application/json': { a: 1 } }],
  [
    '_repr_mimebundle_',
    '{"text/html": "<i>", "image/png": b"png"}',
    { 'text/html': '<i>', 'image/png': 'cG5n' },
  ],
  ['_repr_html_', 'None', {}],
])('%s that gives %s', async (method, value, parts) => {
  expect(await bundlesOf(shown(method, value))).toEqual([{ 'text/plain': 'C', ...parts }])
})

test.each([
  [
    'a rich form that raises',
    shown('_repr_html_', '1 / 0'),
    /^C\n\(_repr_html_ raised ZeroDivisionError: division/,
  ],
  [
    'a repr that raises',
    'class R:\n  def __repr__(self): return 1 / 0\nR()',
    /^<R object>\n\(repr raised ZeroDiv/,
  ],
  ['a rich form that is no JSON', shown('_repr_json_', '{1}'), /raised TypeError: set is not JSON/],
  ['a media type that is none', shown('_repr_mimebundle_', '{"x y": 1}'), /raised ValueError/],
  ['a class', shown('_repr_html_', '"a"').replace('display(C())', 'C'), /^<class '__main__.C'>$/],
  ['an object that has everything', 'from unittest.mock import MagicMock\nMagicMock()', /^<MagicMock id=/],
])('%s is shown as text', async (_, code, text) => {
  const bundles = await bundlesOf(code)
  expect(Object.keys(bundles.at(-1) ?? {})).toEqual(['text/plain'])
  expect(bundles.at(-1)?.['text/plain']).toMatch(text)
})

test('containers are JSON, too', async () => {
  expect(await bundlesOf('display([{"a": (1, None)}], {"b": {1}})')).toEqual([
    { 'text/plain': "[{'a': (1, None)}]", 'application/json': [{ a: [1, null] }] },
    { 'text/plain': "{'b': {1}}" },
  ])
})

test('displays come in order, the value last and marked', async () => {
  const { displays } = await kernel.run('display(1)\ndisplay(2)\n3')
  expect(displays.map(({ data, isValue }) => [data['text/plain'], isValue])).toEqual([
    ['1', false],
    ['2', false],
    ['3', true],
  ])
})

test('results beyond the limit are dropped, and the run says so once', async () => {
  const code =
    'text = "x" * 4_000_000\nclass H:\n  def _repr_html_(self): return text\nfor _ in range(9): display(H())\n5'
  const { displays, result } = await kernel.run(code)
  expect(displays.map(({ data }) => 'text/html' in data)).toEqual([true, true, false])
  expect(displays[2]?.data['text/plain']).toContain('dropped')
  expect(JSON.stringify(displays).length).toBeLessThan(MAX_RESULTS_BYTES)
  expect(result).toBe('5')
})

test('a data frame is text, HTML and a table', async () => {
  const code = `import pandas as pd, numpy as np
pd.DataFrame({"a": [1, 2], "b": [1.5, np.nan], "c": ["x", None], "d": pd.to_datetime(["2026-01-02", None])})`
  const [bundle] = await bundlesOf(code)
  expect(bundle?.['text/html']).toContain('<table')
  expect(bundle?.['text/plain']).toContain('2026-01-02')
  expect(bundle?.[TABLE_TYPE]).toEqual({
    columns: ['a', 'b', 'c', 'd'],
    rows: [
      [1, 1.5, 'x', '2026-01-02 00:00:00'],
      [2, null, null, null],
    ],
    totalRows: 2,
  })
})

test('labels of rows are columns; long tables are cut', async () => {
  const [grouped, series, long] =
    await bundlesOf(`frame = pd.DataFrame({"k": ["p", "q", "p"], "v": [1, 2, 3]})
display(frame.groupby("k").sum(), pd.Series([1, np.inf], name="s"), pd.DataFrame({"n": range(5000)}))`)
  expect(grouped?.[TABLE_TYPE]).toEqual({
    columns: ['k', 'v'],
    rows: [
      ['p', 4],
      ['q', 2],
    ],
    totalRows: 2,
  })
  expect(series?.[TABLE_TYPE]).toEqual({ columns: ['s'], rows: [[1], ['inf']], totalRows: 2 })
  expect(series?.['text/html']).toContain('<table')
  expect(long?.[TABLE_TYPE]).toMatchObject({ totalRows: 5000 })
  expect(long?.[TABLE_TYPE]).toHaveProperty('rows.length', 1000)
})

const isPng = (bundle: MimeBundle) =>
  Buffer.from(String(bundle['image/png']), 'base64').subarray(1, 4).toString() === 'PNG'

test('open figures are shown after the run and closed', async () => {
  const bundles = await bundlesOf('import matplotlib.pyplot as plt\nplt.plot([1, 2]);\nplt.figure();')
  expect(bundles.map(isPng)).toEqual([true, true])
  expect(await bundlesOf('plt.get_fignums()')).toMatchObject([{ 'text/plain': '[]' }])
})

test('show shows what is open, in order, and says nothing on stderr', async () => {
  const bundles = await bundlesOf(
    'plt.plot([1]); plt.show(); display("between"); f, a = plt.subplots(); f.show()',
  )
  expect(bundles.map((bundle) => 'image/png' in bundle)).toEqual([true, false, true, true])
  expect(kernel.stderr).not.toMatch(/non-interactive|Warning/)
})

test('a figure that is the value is shown once', async () => {
  const { displays } = await kernel.run('f, a = plt.subplots()\nf')
  expect(displays.map(({ data, isValue }) => ['image/png' in data, isValue])).toEqual([[true, true]])
})

test('a chart of a data frame comes out of a script, too', async () => {
  const script = new KernelProcess('python')
  const { displays, done } = await script.run({
    kind: 'script',
    code: 'import pandas as pd\npd.DataFrame({"a": [1, 2]}).plot();',
  })
  expect(done).toEqual({})
  expect(displays.map(({ data }) => isPng(data))).toEqual([true])
  expect((await script.exited)[0]).toBe(0)
  await script.stop()
})
