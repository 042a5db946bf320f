/* A library with much code, through which a call goes in steps that lie far apart: `chain(function, argument)` calls
 * link_0, that calls link_1, and so on, with a thousand functions between any two; the last calls function(argument). */
__asm__(".text\n"
	".altmacro\n"
	".macro link number, next\n"
	".type link_\\number, @function\n"
	"link_\\number: .cfi_startproc\n"
	"	sub $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call link_\\next\n"
	"	add $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size link_\\number, .-link_\\number\n"
	".endm\n"
	".set at, 0\n"
	".rept 24\n"
	"	link %at, %(at + 1)\n"
	"	.set at, at + 1\n"
	"	.rept 1000\n"
	"	.cfi_startproc\n"
	"	push %rbx\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pop %rbx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.endr\n"
	".endr\n"
	".noaltmacro\n"
	".type link_24, @function\n"
	"link_24: .cfi_startproc\n"
	"	sub $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	mov %rdi, %rax\n"
	"	mov %rsi, %rdi\n"
	"	call *%rax\n"
	"	add $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size link_24, .-link_24\n"
	".globl chain\n"
	".type chain, @function\n"
	"chain: .cfi_startproc\n"
	"	jmp link_0\n"
	"	.cfi_endproc\n"
	"	.size chain, .-chain\n");

typedef int launch_kernel(void *kernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
			  void **, void **);
struct launch {
	launch_kernel *function;
	void *kernel;
};

/* What `chain` may call: launches a kernel. */
int launch(const struct launch *what)
{
	int result = what->function(what->kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);

	return result;
}
