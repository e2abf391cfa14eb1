"""How the page looks: light and dark, on a telephone and on paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1d21; --quiet: #5b616b; --paper: #fafafa; --card: #ffffff; --line: #dcdfe4; --link: #0058a3;
  --good: 0,114,178; --bad: 213,94,0; --deep: 0.7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --quiet: #a5abb5; --paper: #131519; --card: #1c1f24; --line: #353a42; --link: #7cc0f5;
  --good: 40,130,205; --bad: 215,100,20; --deep: 0.65; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0 auto; max-width: 64rem; padding: 2rem 1.25rem 5rem; font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif;
  color: var(--ink); background: var(--paper); overflow-wrap: break-word; }
h1 { font-size: clamp(1.45rem, 4vw, 2.1rem); line-height: 1.2; margin: 0 0 0.3rem; letter-spacing: -0.01em; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 0.5rem; padding-top: 0.9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 0.4rem; }
p { max-width: 46rem; margin: 0.5rem 0; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 4px; }
.quiet { color: var(--quiet); font-size: 0.92rem; }
.answer { font-size: 1.12rem; background: var(--card); border: 1px solid var(--line); border-left: 5px solid rgb(var(--good)); border-radius: 8px;
  padding: 0.9rem 1.1rem; margin: 1.1rem 0; max-width: none; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: 0.4rem; padding: 0; margin: 1rem 0 0; }
nav a { display: inline-block; padding: 0.2rem 0.75rem; border: 1px solid var(--line); border-radius: 99px; background: var(--card); font-size: 0.9rem;
  text-decoration: none; }
nav a:hover { text-decoration: underline; }
.scroll { overflow-x: auto; max-width: 100%; margin: 0.8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.88rem; }
th, td { padding: 0.32rem 0.8rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { color: var(--quiet); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0.2rem; }
tbody th { font-weight: 500; } #ranking tbody tr:first-child th { font-weight: 700; }
figure { margin: 1rem 0 1.6rem; }
figure .scroll { background: #ffffff; border: 1px solid var(--line); border-radius: 8px; padding: 0.7rem; }
figure img { display: block; width: 100%; min-width: 34rem; max-width: 56rem; height: auto; margin: 0 auto; }
figcaption { color: var(--quiet); font-size: 0.92rem; max-width: 46rem; }
details { border: 1px solid var(--line); border-radius: 8px; background: var(--card); padding: 0 1rem; margin: 0.8rem 0; }
summary { cursor: pointer; padding: 0.6rem 0; font-weight: 600; }
pre, .passage { font: 0.86rem/1.65 ui-monospace, "SF Mono", Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0.5rem 0;
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 0.7rem 0.9rem; }
details pre { border: 0; padding: 0 0 0.8rem; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: 0 1rem; }
.passage { max-width: none; } .passage span { border-radius: 2px; }
.b1 { background: rgba(var(--good),0.14); } .b2 { background: rgba(var(--good),0.30); } .b3 { background: rgba(var(--good),0.50); }
.b4 { background: rgba(var(--good),var(--deep)); }
.w1 { background: rgba(var(--bad),0.14); } .w2 { background: rgba(var(--bad),0.30); } .w3 { background: rgba(var(--bad),0.50); }
.w4 { background: rgba(var(--bad),var(--deep)); }
.s0 { background: rgba(0,114,178,0.38); } .s1 { background: rgba(213,94,0,0.38); } .s2 { background: rgba(0,158,115,0.38); }
.s3 { background: rgba(204,121,167,0.38); } .s4 { background: rgba(86,180,233,0.38); } .s5 { background: rgba(230,159,0,0.38); }
.s6 { background: rgba(128,128,128,0.38); }
.legend span { color: var(--ink); padding: 0.1rem 0.45rem; border-radius: 3px; margin-right: 0.15rem; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: 0.25rem 1.2rem; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 480px) { body { padding: 1.2rem 0.8rem 3rem; } .answer { font-size: 1.02rem; } dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 0.5rem; } }
@media print { body { max-width: none; background: #fff; } nav { display: none; } figure, .passage { break-inside: avoid; } figure img { min-width: 0; } }
"""
