# DnCNN: restores images, such as by denoising.
#
# Designed for images of any size. Targets are images of the same size. The network adds its output to the
# image, so that it only learns the difference; the result has the pixels of an image, 0 to 255.
# Recommended settings: Adam, learning rate 0.001, batches of 16, 30 epochs, no mean subtraction.
#
# paper: Zhang, Zuo, Chen, Meng and Zhang, 2017, “Beyond a Gaussian Denoiser: Residual Learning of Deep CNN for Image
# paper: Denoising”, with 8 instead of 17 layers.
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=fixed batch_size=16 train_epochs=30 use_mean=none
# kinds: image-processing

from keras import layers

LAYERS = 8
FILTERS = 32


class UserModel(Tower):
    @model_property
    def inference(self):
        x = self.x / 255.0
        net = layers.Conv2D(FILTERS, 3, padding="same", activation="relu", name="conv1")(x)
        for number in range(2, LAYERS):
            net = layers.Conv2D(FILTERS, 3, padding="same", use_bias=False, name=f"conv{number}")(net)
            normalize = layers.BatchNormalization(momentum=0.9, name=f"norm{number}")
            net = tf.nn.relu(normalize(net, training=self.is_training))
        # Initially zero: the untrained network returns the image itself.
        difference = layers.Conv2D(
            self.input_shape[2], 3, padding="same", kernel_initializer="zeros", name="difference"
        )(net)
        return 255.0 * (x + tf.cast(difference, x.dtype))

    @model_property
    def loss(self):
        return digits.mse_loss(self.inference / 255.0, self.y / 255.0)
